// Writes to one FusionJob itself. Each goes on from the version that the one before has left, so that what somebody else has written since
// the job was looked at makes it a conflict, and the job is looked at again. Blocks on the hub's API server.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kube/client/api_client.h"
#include "lib/kubeapi/fusion_job_status.h"
#include "operator/cache/job_source.h"

namespace fusionllm::op::controller {

class JobWrites {
 public:
  // All must outlive it. `jobs` gets each write.
  JobWrites(const cache::JobView& view, kube::ApiClient& hub, cache::JobSource& jobs, const kube::CallOptions& call)
      : view_(view), hub_(hub), jobs_(jobs), call_(call), version_(view.resource_version) {}

  absl::Status AddFinalizer();
  // OK, too, where it is gone, or the job.
  absl::Status RemoveFinalizer();
  absl::Status ApplyStatus(const kubeapi::FusionJobStatus& status);
  // As it was looked at: its time may have been made longer since. OK, too, where it is gone.
  absl::Status Delete();

 private:
  absl::Status PatchFinalizers(const std::vector<std::string>& finalizers);
  // Of the answer, the version.
  absl::Status Took(const absl::StatusOr<std::string>& answer);
  kube::ObjectKey Key() const { return {view_.identity.ns, view_.identity.name}; }

  const cache::JobView& view_;
  kube::ApiClient& hub_;
  cache::JobSource& jobs_;
  const kube::CallOptions& call_;
  std::string version_;
};

}  // namespace fusionllm::op::controller
