#include "operator/lifecycle/failed_reason.h"

namespace fusionllm::op::lifecycle {

const char* Name(FailedReason reason) {
  switch (reason) {
    case FailedReason::kBackoffLimitExceeded:
      return "BackoffLimitExceeded";
    case FailedReason::kDeadlineExceeded:
      return "DeadlineExceeded";
    case FailedReason::kFailurePolicy:
      return "FailurePolicy";
    case FailedReason::kInvalidInput:
      return "InvalidInput";
    case FailedReason::kInvalidSpec:
      return "InvalidSpec";
    case FailedReason::kPendingDeadlineExceeded:
      return "PendingDeadlineExceeded";
    case FailedReason::kPlacementFailed:
      return "PlacementFailed";
  }
  return "?";
}

}  // namespace fusionllm::op::lifecycle
