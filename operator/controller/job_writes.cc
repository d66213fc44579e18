#include "operator/controller/job_writes.h"

#include <nlohmann/json.hpp>

#include "lib/base/status_macros.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/api/json_fields.h"
#include "operator/controller/job_status.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::controller {

using nlohmann::json;

absl::Status JobWrites::AddFinalizer() {
  std::vector<std::string> finalizers = view_.finalizers;
  finalizers.push_back(manifests::kFinalizer);
  return PatchFinalizers(finalizers);
}

absl::Status JobWrites::RemoveFinalizer() {
  std::vector<std::string> finalizers = view_.finalizers;
  std::erase(finalizers, manifests::kFinalizer);
  if (finalizers.size() == view_.finalizers.size()) return absl::OkStatus();
  const absl::Status status = PatchFinalizers(finalizers);
  return kube::IsApiNotFound(status) ? absl::OkStatus() : status;
}

absl::Status JobWrites::PatchFinalizers(const std::vector<std::string>& finalizers) {
  const json patch = {{"metadata", {{"finalizers", finalizers}, {"resourceVersion", version_}, {"uid", view_.identity.uid}}}};
  return Took(
      hub_.Patch(manifests::kFusionJobs, Key(), kube::PatchType::kMerge, patch.dump(), {.field_manager = manifests::kFieldManager}, call_));
}

absl::Status JobWrites::ApplyStatus(const kubeapi::FusionJobStatus& status) {
  const std::string body = StatusBody(view_, version_, status);
  return Took(hub_.Apply(manifests::kFusionJobs, Key(), body, {.field_manager = manifests::kFieldManager, .subresource = "status"}, call_));
}

absl::Status JobWrites::Delete() {
  const kube::DeleteOptions options{.uid = view_.identity.uid, .resource_version = version_};
  const absl::Status status = hub_.Delete(manifests::kFusionJobs, Key(), options, call_).status();
  return kube::IsApiNotFound(status) ? absl::OkStatus() : status;
}

absl::Status JobWrites::Took(const absl::StatusOr<std::string>& answer) {
  FUSIONLLM_RETURN_IF_ERROR(answer.status());
  const std::string version = kube::TextAt(kube::ParseJson(*answer), "metadata", "resourceVersion");
  if (!version.empty()) {
    version_ = version;
    jobs_.Wrote(Key(), version);
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::op::controller
