#include "operator/reconcile/job_view.h"

#include <nlohmann/json.hpp>

#include "lib/kubeapi/objects.h"

namespace fusionllm::op {
namespace {

using nlohmann::json;

std::string Text(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::optional<absl::Time> Time(const json& object, const char* key) {
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, Text(object, key), &time, nullptr)) return std::nullopt;
  return time;
}

}  // namespace

absl::StatusOr<JobView> ReadJob(const json& object, const std::string& origin, const std::string& hub) {
  if (!object.is_object() || !object.contains("metadata") || !object["metadata"].is_object()) {
    return absl::InvalidArgumentError("a FusionJob without metadata");
  }
  const json& metadata = object["metadata"];
  JobView view{.job = absl::UnknownError("not read")};
  view.identity = {
      .name = Text(metadata, "name"), .ns = Text(metadata, "namespace"), .uid = Text(metadata, "uid"), .origin = origin, .hub = hub};
  if (view.identity.name.empty() || view.identity.uid.empty()) return absl::InvalidArgumentError("a FusionJob without name or uid");
  view.resource_version = Text(metadata, "resourceVersion");
  if (metadata.contains("generation") && metadata["generation"].is_number_integer()) view.generation = metadata["generation"];
  view.created_at = Time(metadata, "creationTimestamp").value_or(absl::UnixEpoch());
  view.deleted_at = Time(metadata, "deletionTimestamp");
  if (metadata.contains("finalizers") && metadata["finalizers"].is_array()) {
    for (const json& finalizer : metadata["finalizers"]) {
      if (finalizer.is_string()) view.finalizers.push_back(finalizer);
    }
  }
  if (object.contains("spec") && object["spec"].is_object()) view.managed_by = Text(object["spec"], "managedBy");
  view.job = kubeapi::FusionJobFromObject(object);
  // A status that cannot be read is written anew.
  if (auto status = kubeapi::FusionJobStatusFromObject(object); status.ok()) view.status = *std::move(status);
  return view;
}

}  // namespace fusionllm::op
