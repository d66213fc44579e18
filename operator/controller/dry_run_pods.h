// Asks a cluster's API server whether it would take a job's Pods before anything is made for them: a dry run of one Pod of each role, which
// meets the schema, Pod security, quotas and webhooks as the Pod itself would, and changes nothing. Then whether all is there that they
// name (missing_references.h).
#pragma once

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "operator/cache/member.h"
#include "operator/controller/refusal.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::controller {

struct DryRunRequest {
  const manifests::JobIdentity* identity = nullptr;
  const job::FusionJob* job = nullptr;
  const manifests::Images* images = nullptr;
  manifests::Attempt attempt;
  std::string where;                                // how the cluster is called in messages: "The hub", "Cluster tokyo"
  bool broker = false;                              // it is to run there
  std::optional<manifests::ExecutorSlot> executor;  // one of those that are to run there
};

// Nothing: it takes them. An error: it has not said, and what is made for the job meets the same. Blocks on the API server.
absl::StatusOr<std::optional<Refused>> DryRunPods(cache::Member& member, const DryRunRequest& request, std::stop_token stop);

}  // namespace fusionllm::op::controller
