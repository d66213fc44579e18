#include "operator/lifecycle/job_condition.h"

namespace fusionllm::op::lifecycle {

const char* Name(JobCondition condition) {
  switch (condition) {
    case JobCondition::kAccepted:
      return "Accepted";
    case JobCondition::kAdmitted:
      return "Admitted";
    case JobCondition::kCheckpointStale:
      return "CheckpointStale";
    case JobCondition::kComplete:
      return "Complete";
    case JobCondition::kDegraded:
      return "Degraded";
    case JobCondition::kDeleting:
      return "Deleting";
    case JobCondition::kFailed:
      return "Failed";
    case JobCondition::kPlacementHint:
      return "PlacementHint";
    case JobCondition::kQuotaReserved:
      return "QuotaReserved";
    case JobCondition::kReady:
      return "Ready";
    case JobCondition::kResizing:
      return "Resizing";
    case JobCondition::kRestarting:
      return "Restarting";
    case JobCondition::kScheduled:
      return "Scheduled";
    case JobCondition::kSuspended:
      return "Suspended";
  }
  return "";
}

}  // namespace fusionllm::op::lifecycle
