#include "operator/cache/job_view.h"

#include <nlohmann/json.hpp>

#include "lib/kube/api/json_fields.h"
#include "lib/kubeapi/objects.h"

namespace fusionllm::op::cache {
namespace {

using kube::TextAt;
using nlohmann::json;

std::optional<absl::Time> Time(const json& object, const char* key) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, TextAt(object, key), &time, nullptr)) return std::nullopt;
  return time;
}

// Field by field, for any of the others may be what is wrong; one that is itself wrong has its default.
job::FusionJob EndingOf(const json& object, const manifests::JobIdentity& identity) {
  job::FusionJob job;
  job.metadata.name = identity.name;
  const json& spec = kube::At(object, "spec");
  const auto is_true = [&](const char* key) { return kube::At(spec, key) == true; };
  job.spec.suspend = is_true("suspend");
  job.spec.preserve_resources_on_deletion = is_true("preserveResourcesOnDeletion");
  job.spec.force_delete_after_seconds = kube::IntegerOf(kube::At(spec, "forceDeleteAfterSeconds"), job.spec.force_delete_after_seconds);
  if (const json& ttl = kube::At(spec, "ttlSecondsAfterFinished"); ttl.is_number_integer()) {
    job.spec.ttl_seconds_after_finished = kube::IntegerOf(ttl, 0);
  }
  for (const auto policy : {job::CleanPodPolicy::kAll, job::CleanPodPolicy::kNone}) {
    if (TextAt(spec, "cleanPodPolicy") == ToString(policy)) job.spec.clean_pod_policy = policy;
  }
  return job;
}

}  // namespace

absl::StatusOr<JobView> ReadJob(const json& object, const std::string& origin, const std::string& hub) {
  const json& metadata = kube::At(object, "metadata");
  if (!metadata.is_object()) return absl::InvalidArgumentError("a FusionJob without metadata");
  JobView view{.job = absl::UnknownError("not read")};
  view.identity = {
      .name = TextAt(metadata, "name"), .ns = TextAt(metadata, "namespace"), .uid = TextAt(metadata, "uid"), .origin = origin, .hub = hub};
  if (view.identity.name.empty() || view.identity.uid.empty()) return absl::InvalidArgumentError("a FusionJob without name or uid");
  view.resource_version = TextAt(metadata, "resourceVersion");
  view.generation = kube::IntegerOf(kube::At(metadata, "generation"), view.generation);
  view.created_at = Time(metadata, "creationTimestamp").value_or(absl::UnixEpoch());
  view.deleted_at = Time(metadata, "deletionTimestamp");
  for (const json& finalizer : kube::ListOf(kube::At(metadata, "finalizers"))) {
    if (finalizer.is_string()) view.finalizers.push_back(finalizer);
  }
  const std::string force = TextAt(metadata, "annotations", manifests::kForceDeleteAnnotation);
  view.force_delete = !force.empty() && force != "false";
  const std::string manager = TextAt(object, "spec", "managedBy");
  view.ours = manager.empty() || manager == kubeapi::kOperatorName;
  view.queue = TextAt(metadata, "labels", manifests::kQueueNameLabel);
  view.queue_priority = TextAt(metadata, "labels", manifests::kQueuePriorityLabel);
  view.job = kubeapi::FusionJobFromObject(object);
  if (!view.job.ok()) view.ending = std::make_shared<const job::FusionJob>(EndingOf(object, view.identity));
  // A status that cannot be read is written again.
  if (auto status = kubeapi::FusionJobStatusFromObject(object); status.ok()) view.status = *std::move(status);
  return view;
}

}  // namespace fusionllm::op::cache
