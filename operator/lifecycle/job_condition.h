// The conditions that a job's status may have: nothing else can be set, and docs/reference/kubernetes-reference.md describes each
// (status_reference_test.cc compares).
#pragma once

namespace fusionllm::op::lifecycle {

enum class JobCondition {
  kAccepted,
  kAdmitted,
  kCheckpointStale,
  kComplete,
  kDegraded,
  kDeleting,
  kFailed,
  kPlacementHint,
  kQuotaReserved,
  kReady,
  kResizing,
  kRestarting,
  kScheduled,
  kSuspended,
};
inline constexpr JobCondition kJobConditions[] = {
    JobCondition::kAccepted,      JobCondition::kAdmitted,  JobCondition::kCheckpointStale, JobCondition::kComplete,
    JobCondition::kDegraded,      JobCondition::kDeleting,  JobCondition::kFailed,          JobCondition::kPlacementHint,
    JobCondition::kQuotaReserved, JobCondition::kReady,     JobCondition::kResizing,        JobCondition::kRestarting,
    JobCondition::kScheduled,     JobCondition::kSuspended,
};
// As Kubernetes has it: "Ready".
const char* Name(JobCondition condition);

}  // namespace fusionllm::op::lifecycle
