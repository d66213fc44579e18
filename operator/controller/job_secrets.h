// The Secrets of a job in one cluster: its authority, on the hub, and what its broker and executors mount. For one preparation (prepare.h).
// Certificates of the job's CA that are there already stay until they are near their end, and keys for good: pods run with them.
// Blocks on the API servers; errors are theirs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/cache/member.h"
#include "operator/controller/job_objects.h"
#include "operator/manifests/authority_cache.h"
#include "operator/manifests/job_credentials.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::controller {

class JobSecrets {
 public:
  // `authorities`: null: none are kept. All must outlive it.
  JobSecrets(cache::Member& member, const manifests::JobIdentity& job, absl::Time now, manifests::AuthorityCache* authorities,
             kube::CallOptions call)
      : member_(member), job_(job), now_(now), authorities_(authorities), call_(std::move(call)), objects_(member, job, call_) {}

  // On the hub. Made once: a second authority would shut out the pods that have certificates of the first. One that somebody has deleted is
  // what is still known of it. `renew`: there are no such pods, and one that has little of its life left is replaced.
  absl::StatusOr<manifests::JobCredentials> Authority(const manifests::Owner& owner, bool renew);
  // For another cluster, as the hub has it. Unavailable: it has none now.
  absl::StatusOr<manifests::JobCredentials> AuthorityOn(cache::Member& hub);
  absl::Status ForBroker(const manifests::JobCredentials& authority, const manifests::Owner& owner);
  // Of those of `slots` that are in `cluster`.
  absl::Status ForExecutors(const manifests::JobCredentials& authority, const std::vector<manifests::ExecutorSlot>& slots,
                            const std::string& cluster, const manifests::Owner& owner);

 private:
  // As AuthorityFiles() made it, from whatever is left of it; else a new one.
  absl::StatusOr<manifests::JobCredentials> RestoreOrMake();
  // In place of one that has little left, if it may be.
  absl::StatusOr<manifests::JobCredentials> Renewed(manifests::JobCredentials authority, bool renew) const;
  // Certificates of `authority`, those there if they are, else as `make` has them.
  absl::Status Ensure(const std::string& name, const manifests::JobCredentials& authority, const std::vector<std::string>& wanted,
                      const manifests::Owner& owner, const std::function<absl::StatusOr<manifests::Files>()>& make);
  void Keep(const manifests::JobCredentials& authority);

  cache::Member& member_;
  const manifests::JobIdentity& job_;
  const absl::Time now_;
  manifests::AuthorityCache* const authorities_;
  const kube::CallOptions call_;
  const JobObjects objects_;
};

}  // namespace fusionllm::op::controller
