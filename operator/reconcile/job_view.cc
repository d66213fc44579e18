#include "operator/reconcile/job_view.h"

#include <nlohmann/json.hpp>

#include "lib/kube/api/json_fields.h"
#include "lib/kubeapi/objects.h"

namespace fusionllm::op {
namespace {

using kube::TextAt;
using nlohmann::json;

std::optional<absl::Time> Time(const json& object, const char* key) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, TextAt(object, key), &time, nullptr)) return std::nullopt;
  return time;
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
  const std::string force = TextAt(metadata, "annotations", kForceDeleteAnnotation);
  view.force_delete = !force.empty() && force != "false";
  const std::string manager = TextAt(object, "spec", "managedBy");
  view.ours = manager.empty() || manager == kubeapi::kOperatorName;
  view.job = kubeapi::FusionJobFromObject(object);
  // A status that cannot be read is written anew.
  if (auto status = kubeapi::FusionJobStatusFromObject(object); status.ok()) view.status = *std::move(status);
  return view;
}

}  // namespace fusionllm::op
