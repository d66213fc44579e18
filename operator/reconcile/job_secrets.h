// The Secrets of a job in one cluster: its authority, on the hub, and what its broker and executors mount. For one preparation (prepare.h).
// Certificates of the job's authority that are there already stay until they are near their end, and keys for good: pods run with them.
// Blocks on the API servers; errors are theirs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/credentials/authority_cache.h"
#include "operator/credentials/job_credentials.h"
#include "operator/manifests/run_objects.h"
#include "operator/members/member.h"
#include "operator/reconcile/job_objects.h"

namespace fusionllm::op {

class JobSecrets {
 public:
  // `authorities`: null: none are kept. All must outlive it.
  JobSecrets(Member& member, const JobIdentity& job, absl::Time now, AuthorityCache* authorities, kube::CallOptions call)
      : member_(member), job_(job), now_(now), authorities_(authorities), call_(std::move(call)), objects_(member, job, call_) {}

  // On the hub. Made once: a second authority would shut out the pods that have certificates of the first. One that somebody has deleted is
  // what is still known of it. `renew`: there are no such pods, and one that has little of its life left is replaced.
  absl::StatusOr<JobCredentials> Authority(const Owner& owner, bool renew);
  // For another cluster, as the hub has it. Unavailable: it has none now.
  absl::StatusOr<JobCredentials> AuthorityOn(Member& hub);
  absl::Status ForBroker(const JobCredentials& authority, const Owner& owner);
  // Of those of `slots` that are in `cluster`.
  absl::Status ForExecutors(const JobCredentials& authority, const std::vector<ExecutorSlot>& slots, const std::string& cluster,
                            const Owner& owner);

 private:
  // As AuthorityFiles() made it, from whatever is left of it; else a new one.
  absl::StatusOr<JobCredentials> RestoreOrMake();
  // In place of one that has little left, if it may be.
  absl::StatusOr<JobCredentials> Renewed(JobCredentials authority, bool renew) const;
  // Certificates of `authority`, those there if they are, else as `make` has them.
  absl::Status Ensure(const std::string& name, const JobCredentials& authority, const std::vector<std::string>& wanted, const Owner& owner,
                      const std::function<absl::StatusOr<Files>()>& make);
  void Keep(const JobCredentials& authority);

  Member& member_;
  const JobIdentity& job_;
  const absl::Time now_;
  AuthorityCache* const authorities_;
  const kube::CallOptions call_;
  const JobObjects objects_;
};

}  // namespace fusionllm::op
