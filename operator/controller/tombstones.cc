#include "operator/controller/tombstones.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {
namespace {

using kube::TextAt;
using nlohmann::json;

constexpr char kPreserve[] = "preserve";

// A uid and a cluster's name: together no longer than a name may be, and never another job's.
std::string NameOf(const std::string& job_uid, const std::string& cluster) {
  return absl::StrCat("fusion-tombstone-", job_uid, "-", cluster);
}

}  // namespace

absl::Status Tombstones::Set(const manifests::JobIdentity& job, const std::string& cluster, bool preserve, absl::Time now,
                             std::stop_token stop) {
  const std::string name = NameOf(job.uid, cluster);
  json labels = {{"app.kubernetes.io/name", "fusionllm"},
                 {"app.kubernetes.io/managed-by", "fusion-operator"},
                 {manifests::kOriginLabel, origin_},
                 {manifests::kRoleLabel, manifests::kTombstoneRole},
                 {manifests::kClusterLabel, cluster}};
  if (!hub_.empty()) labels[manifests::kHubLabel] = hub_;
  const json object = {
      {"apiVersion", "v1"},
      {"kind", "ConfigMap"},
      {"metadata",
       {{"name", name},
        {"namespace", ns_},
        {"labels", labels},
        {"annotations",
         {{"fusionllm.io/description", "The job is gone, objects of it may be left in this cluster: they are seen to when it is back."}}}}},
      {"data",
       {{"cluster", cluster},
        {"namespace", job.ns},
        {"job", job.name},
        {"uid", job.uid},
        {"since", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", now, absl::UTCTimeZone())},
        {kPreserve, preserve ? "true" : "false"}}}};
  const absl::Status status =
      client_.Create(manifests::kConfigMaps, ns_, object.dump(), {.field_manager = manifests::kFieldManager}, {.stop = std::move(stop)})
          .status();
  return kube::IsApiAlreadyExists(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<Tombstone>> Tombstones::In(const std::string& cluster, std::stop_token stop) const {
  const std::string selector =
      absl::StrCat(manifests::kOriginLabel, "=", origin_, ",", manifests::kRoleLabel, "=", manifests::kTombstoneRole, ",",
                   manifests::kClusterLabel, "=", cluster, hub_.empty() ? "" : absl::StrCat(",", manifests::kHubLabel, "=", hub_));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string answer,
                             client_.List(manifests::kConfigMaps, ns_, {.label_selector = selector}, {.stop = std::move(stop)}));
  const json list = kube::ParseJson(answer);
  std::vector<Tombstone> tombstones;
  for (const json& object : kube::ListOf(kube::At(list, "items"))) {
    Tombstone tombstone{.name = TextAt(object, "metadata", "name"),
                        .uid = TextAt(object, "metadata", "uid"),
                        .cluster = cluster,
                        .ns = TextAt(object, "data", "namespace"),
                        .job = TextAt(object, "data", "job"),
                        .job_uid = TextAt(object, "data", "uid"),
                        .preserve = TextAt(object, "data", kPreserve) == "true"};
    // Labels are easily copied; what somebody made by them is none of ours to act upon, or to delete.
    if (tombstone.name == NameOf(tombstone.job_uid, cluster)) tombstones.push_back(std::move(tombstone));
  }
  return tombstones;
}

absl::Status Tombstones::Remove(const Tombstone& tombstone, std::stop_token stop) {
  const absl::Status status =
      client_.Delete(manifests::kConfigMaps, {ns_, tombstone.name}, {.uid = tombstone.uid}, {.stop = std::move(stop)}).status();
  return kube::IsApiNotFound(status) || kube::IsApiConflict(status) ? absl::OkStatus() : status;
}

}  // namespace fusionllm::op::controller
