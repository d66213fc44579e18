#include "cli/cluster/server_objects.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/member_objects.h"
#include "lib/base/json_text.h"
#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::cli {

using nlohmann::json;

namespace {

const kube::Resource kFusionJobResource = {"fusionllm.io", "v1alpha1", "fusionjobs", "FusionJob", true};
constexpr size_t kJobsNamed = 5;

}  // namespace

json Parsed(const std::string& text) { return base::ParseJson(text); }

std::string TextAt(const json& object, const char* pointer) {
  const json::json_pointer at(pointer);
  return object.is_object() && object.contains(at) && object[at].is_string() ? object[at].get<std::string>() : "";
}

absl::StatusOr<json> GetIfExists(kube::ApiClient& client, const kube::Resource& resource, const kube::ObjectKey& key) {
  const absl::StatusOr<std::string> found = client.Get(resource, key);
  if (kube::IsApiNotFound(found.status())) return json();
  FUSIONLLM_RETURN_IF_ERROR(found.status());
  return Parsed(*found);
}

bool IsManagedByFusionctl(const json& object) {
  return object.contains("metadata") &&
         object["metadata"].value("labels", json::object()).value(kubeapi::kManagedByLabel, "") == kFieldManager;
}

absl::StatusOr<std::vector<std::string>> NamespacesOf(kube::ApiClient& member, const std::string& role) {
  const auto listed = member.List(kRoleBindingResource, "", {.label_selector = absl::StrCat(kubeapi::kManagedByLabel, "=", kFieldManager)});
  if (!listed.ok()) return absl::Status(listed.status().code(), absl::StrCat("member: RoleBindings: ", listed.status().message()));
  std::vector<std::string> namespaces;
  for (const json& binding : Parsed(*listed).value("items", json::array())) {
    if (TextAt(binding, "/metadata/name") != role || TextAt(binding, "/roleRef/name") != role) continue;
    namespaces.push_back(TextAt(binding, "/metadata/namespace"));
  }
  return namespaces;
}

absl::StatusOr<std::vector<std::string>> JobsInCluster(kube::ApiClient& hub, const std::string& cluster,
                                                       const std::function<bool(const std::string& ns)>& concerns) {
  const absl::StatusOr<std::string> listed = hub.List(kFusionJobResource, "");
  if (kube::IsApiNotFound(listed.status())) return std::vector<std::string>{};
  if (!listed.ok()) return absl::Status(listed.status().code(), absl::StrCat("hub: FusionJobs: ", listed.status().message()));
  std::vector<std::string> jobs;
  for (const json& job : Parsed(*listed).value("items", json::array())) {
    const std::string ns = TextAt(job, "/metadata/namespace");
    if (concerns && !concerns(ns)) continue;
    const json clusters = job.value("/status/clusterStatuses"_json_pointer, json::array());
    const bool there = std::any_of(clusters.begin(), clusters.end(), [&](const json& c) { return TextAt(c, "/name") == cluster; });
    if (there) jobs.push_back(absl::StrCat(ns, "/", TextAt(job, "/metadata/name")));
  }
  return jobs;
}

std::string JobsText(const std::vector<std::string>& jobs) {
  const size_t count = jobs.size(), named = std::min(count, kJobsNamed);
  const auto end = jobs.begin() + static_cast<ptrdiff_t>(named);
  return absl::StrCat(count, count == 1 ? " job: " : " jobs: ", absl::StrJoin(jobs.begin(), end, ", "), count > named ? ", ..." : "");
}

absl::StatusOr<bool> DeleteIfManaged(kube::ApiClient& client, const std::string& where, const kube::Resource& resource,
                                     const kube::ObjectKey& key, const ProgressCallback& report_progress) {
  const absl::StatusOr<json> found = GetIfExists(client, resource, key);
  if (!found.ok()) return Named(found.status(), where, resource, key);
  if (found->is_null()) return false;
  if (!IsManagedByFusionctl(*found)) {
    report_progress(absl::StrCat(where, ": left ", resource.kind, " ", key.ToString(), ", which something else made"));
    return false;
  }
  const auto deleted = client.Delete(resource, key, {.uid = TextAt(*found, "/metadata/uid")});
  if (!deleted.ok() && !kube::IsApiNotFound(deleted.status())) return Named(deleted.status(), where, resource, key);
  report_progress(absl::StrCat(where, ": deleted ", resource.kind, " ", key.ToString()));
  return true;
}

absl::Status Named(const absl::Status& status, const std::string& where, const kube::Resource& resource, const kube::ObjectKey& key) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", resource.kind, " ", key.ToString(), ": ", status.message()));
}

}  // namespace fusionllm::cli
