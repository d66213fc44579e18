#include "operator/inventory/job_pod.h"

#include "lib/base/status_macros.h"
#include "lib/kube/watch/shared_values.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op {

JobRefPtr JobRefOf(const kube::ObjectMeta& meta) {
  // For the life of the process: a job has objects in many clusters.
  static auto& jobs = *new kube::SharedValues<JobRef>();
  const absl::string_view uid = meta.Label(kJobUidLabel);
  if (uid.empty()) return nullptr;
  return jobs.Share({std::string(meta.Label(kJobLabel)), std::string(uid), std::string(meta.Label(kHubLabel))});
}

absl::Status ReadJobPod(absl::string_view json, JobPod& pod) {
  FUSIONLLM_RETURN_IF_ERROR(kube::ReadPodDemand(json, pod));
  pod.job = JobRefOf(pod.meta);
  pod.executor = pod.job != nullptr && pod.meta.Label(kRoleLabel) == kExecutorRole;
  pod.meta.DropLabels();
  return absl::OkStatus();
}

}  // namespace fusionllm::op
