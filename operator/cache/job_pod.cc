#include "operator/cache/job_pod.h"

#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kube/watch/interner.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::cache {
namespace {

JobRefPtr Share(JobRef job) {
  // For the life of the process: a job has objects in many clusters.
  static auto& jobs = *new kube::Interner<JobRef>();
  return jobs.Share(std::move(job));
}

}  // namespace

JobRefPtr JobRefOf(const kube::ObjectMeta& meta) {
  const absl::string_view uid = meta.Label(manifests::kJobUidLabel);
  if (uid.empty()) return nullptr;
  return Share({std::string(meta.Label(manifests::kJobLabel)), std::string(uid), std::string(meta.Label(manifests::kHubLabel))});
}

JobRefPtr OwnedBy(const JobRef& job, const std::string& owner) {
  JobRef owned = job;
  owned.owner = owner;
  return Share(std::move(owned));
}

absl::Status ReadJobPod(absl::string_view json, JobPod& pod) {
  FUSIONLLM_RETURN_IF_ERROR(kube::ReadPodResources(json, pod));
  pod.job = JobRefOf(pod.meta);
  pod.executor = pod.job != nullptr && pod.meta.Label(manifests::kRoleLabel) == manifests::kExecutorRole;
  pod.meta.DropLabels();
  return absl::OkStatus();
}

}  // namespace fusionllm::op::cache
