#include "lib/kubeapi/objects.h"

#include <functional>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/job/document.h"
#include "lib/job/parse.h"
#include "lib/job/reader.h"
#include "lib/kubeapi/fusion_cluster_fields.h"
#include "lib/kubeapi/json_writer.h"
#include "lib/kubeapi/tree.h"

namespace fusionllm::kubeapi {
namespace {

using nlohmann::json;

// Holds only the keys named here: the rest of an object (managedFields, the status) can be large, and is not ours to judge.
json Picked(const json& object, std::initializer_list<const char*> keys) {
  json picked = json::object();
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found != object.end() && !found->is_null()) picked[key] = *found;
  }
  return picked;
}

// Objects inside a list may come without these two.
json WithIdentity(const json& object, const char* kind, std::initializer_list<const char*> keys) {
  json picked = Picked(object, keys);
  if (!picked.contains("apiVersion")) picked["apiVersion"] = std::string(job::kApiVersion);
  if (!picked.contains("kind")) picked["kind"] = kind;
  const auto metadata = picked.find("metadata");
  if (metadata != picked.end() && metadata->is_object()) {
    *metadata = Picked(json(*metadata), {"name", "namespace", "labels", "annotations"});
  }
  return picked;
}

template <class T>
absl::Status ReadTolerantly(const json& value, const std::function<void(const T&, job::Problems&)>& check, T& out) {
  FUSIONLLM_ASSIGN_OR_RETURN(const job::Node tree, ToTree(value));
  job::Problems problems("");
  problems.SetRoot(&tree);
  job::Reader(tree, problems, job::Reader::UnknownKeys::kTolerated).ReadObject(out);
  if (problems.empty() && check) check(out, problems);
  return problems.ToStatus();
}

void CheckCluster(const FusionCluster& cluster, job::Problems& problems) {
  const FusionClusterSpec& spec = cluster.spec;
  if (int{spec.kube_config.has_value()} + int{spec.cluster_profile_ref.has_value()} + int{spec.local.has_value()} != 1) {
    problems.Add("spec", "must have exactly one of kubeConfig, clusterProfileRef and local");
  }
  if (spec.burst < spec.qps) problems.Add("spec.burst", absl::StrCat("must be at least spec.qps, which is ", spec.qps));
  std::set<std::string> names;
  for (const ClusterLink& link : spec.network.links) {
    if (link.to == cluster.metadata.name) problems.Add("spec.network.links", "must not lead to the cluster itself");
    if (!names.insert(link.to).second) problems.Add("spec.network.links", absl::StrCat(link.to, " is given twice"));
  }
}

// A status stands below "status" in the object, and findings should say so.
struct StatusHolder {
  FusionJobStatus status;
};

template <class V>
void Visit(V& v, StatusHolder& h) {
  v.Field("status", h.status, {}, "");
}

}  // namespace

absl::StatusOr<job::FusionJob> FusionJobFromObject(const json& object) {
  if (!object.is_object()) return absl::InvalidArgumentError("a FusionJob must be a JSON object");
  FUSIONLLM_ASSIGN_OR_RETURN(const job::Node tree, ToTree(WithIdentity(object, "FusionJob", {"apiVersion", "kind", "metadata", "spec"})));
  return job::FusionJobFromTree(tree);
}

absl::StatusOr<FusionJobStatus> FusionJobStatusFromObject(const json& object) {
  if (!object.is_object()) return absl::InvalidArgumentError("a FusionJob must be a JSON object");
  StatusHolder holder;
  FUSIONLLM_RETURN_IF_ERROR(ReadTolerantly<StatusHolder>(Picked(object, {"status"}), nullptr, holder));
  RenameFormerConditions(holder.status);
  return std::move(holder.status);
}

absl::StatusOr<FusionCluster> FusionClusterFromObject(const json& object) {
  if (!object.is_object()) return absl::InvalidArgumentError("a FusionCluster must be a JSON object");
  FusionCluster cluster;
  FUSIONLLM_RETURN_IF_ERROR(ReadTolerantly<FusionCluster>(
      WithIdentity(object, "FusionCluster", {"apiVersion", "kind", "metadata", "spec", "status"}), &CheckCluster, cluster));
  return cluster;
}

json ToJson(const FusionJobStatus& status) { return JsonWriter::Write(status); }
json ToJson(const FusionClusterStatus& status) { return JsonWriter::Write(status); }

json ToJson(const FusionCluster& cluster) {
  json object = JsonWriter::Write(cluster);
  object.erase("status");
  return object;
}

}  // namespace fusionllm::kubeapi
