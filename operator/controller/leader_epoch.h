// Before a leader writes what is a job's in a cluster, the job's owner ConfigMap there carries that leader's epoch: so one that was stopped
// and wakes up sees, before it writes, that another has led since; and what it writes to the owner ConfigMap itself is a conflict.
//
// Pods have no such condition: a request to create or delete one that a stopped process had already begun to send is carried out when it
// goes on. It cannot do harm that lasts: pods are named after the attempt, deletions name a uid, and pods of an attempt that is over are
// removed when they are seen.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "operator/cache/member.h"
#include "operator/controller/fence.h"

namespace fusionllm::op::controller {

struct StampedOwnerConfigMap {
  std::string uid, resource_version;
};

// Reads the owner ConfigMap from the server, not the cache, and writes the epoch into it if it carries a lower one. Nothing: there is none,
// or it is none of this job's. FailedPrecondition: another leads. Unavailable: it was changed meanwhile, look again. Blocks.
absl::StatusOr<std::optional<StampedOwnerConfigMap>> StampLeaderEpoch(cache::Member& member, const manifests::JobIdentity& job,
                                                                      Fence& fence, std::stop_token stop);

}  // namespace fusionllm::op::controller
