// Why a job may have failed, as the condition Failed says it: nothing else can be its reason, and docs/reference/kubernetes-reference.md
// tells of each (status_reference_test.cc compares).
#pragma once

namespace fusionllm::op::lifecycle {

enum class FailedReason {
  kBackoffLimitExceeded,
  kDeadlineExceeded,
  kFailurePolicy,
  kInvalidInput,
  kInvalidSpec,
  kPendingDeadlineExceeded,
  kPlacementFailed,
};
inline constexpr FailedReason kFailedReasons[] = {
    FailedReason::kBackoffLimitExceeded, FailedReason::kDeadlineExceeded, FailedReason::kFailurePolicy,
    FailedReason::kInvalidInput,         FailedReason::kInvalidSpec,      FailedReason::kPendingDeadlineExceeded,
    FailedReason::kPlacementFailed,
};
// As Kubernetes has it: "DeadlineExceeded".
const char* Name(FailedReason reason);

}  // namespace fusionllm::op::lifecycle
