#include "operator/lifecycle/job_state.h"

namespace fusionllm::op::lifecycle {

const char* Name(JobState state) {
  switch (state) {
    case JobState::kPending:
      return "Pending";
    case JobState::kQueued:
      return "Queued";
    case JobState::kStarting:
      return "Starting";
    case JobState::kRunning:
      return "Running";
    case JobState::kRestarting:
      return "Restarting";
    case JobState::kSuspending:
      return "Suspending";
    case JobState::kSuspended:
      return "Suspended";
    case JobState::kComplete:
      return "Complete";
    case JobState::kFailed:
      return "Failed";
    case JobState::kDeleting:
      return "Deleting";
  }
  return "?";
}

}  // namespace fusionllm::op::lifecycle
