// The conditions that a job's status may have: nothing else can be set, and docs/reference/kubernetes-reference.md describes each
// (status_reference_test.cc compares).
#pragma once

namespace fusionllm::op {

enum class JobCondition {
  kAccepted,
  kAdmitted,
  kAdvised,
  kCheckpointStale,
  kComplete,
  kDegraded,
  kDeleting,
  kDispatched,
  kFailed,
  kQuotaReserved,
  kReady,
  kResizing,
  kRestarting,
  kSuspended,
};
inline constexpr JobCondition kJobConditions[] = {
    JobCondition::kAccepted,   JobCondition::kAdmitted,      JobCondition::kAdvised,  JobCondition::kCheckpointStale,
    JobCondition::kComplete,   JobCondition::kDegraded,      JobCondition::kDeleting, JobCondition::kDispatched,
    JobCondition::kFailed,     JobCondition::kQuotaReserved, JobCondition::kReady,    JobCondition::kResizing,
    JobCondition::kRestarting, JobCondition::kSuspended,
};
// As Kubernetes has it: "Ready".
const char* Name(JobCondition condition);

}  // namespace fusionllm::op
