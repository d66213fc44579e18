// What the failure of a pod means for its job, by the rules of spec.failurePolicy.
#pragma once

#include <string>

#include "lib/job/fusion_job.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::lifecycle {

struct FailurePolicyResult {
  job::FailureAction action = job::FailureAction::kRestartJob;
  std::string rule;         // the name of the rule that holds; empty: none did
  std::string description;  // "the broker ended with exit code 1 (Error): ..."
};

// The first rule that names the pod's exit code, reason or disruption decides; one that names none holds for all. Without any: a broker
// that found the job's input wrong (exit code 2) or no plan that fits (3) fails the job, which would end the same again; whatever else
// happened to a broker restarts the job, and to an executor that executor alone.
FailurePolicyResult ApplyFailurePolicy(const job::FailurePolicy& policy, const PodView& pod);

}  // namespace fusionllm::op::lifecycle
