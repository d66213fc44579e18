// The machine reasons of refusals (PlanError::reason). Planners give them, users read them, and callers of a planner tell them apart by
// these names.
#pragma once

#include <algorithm>
#include <iterator>

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler::plan_errors {

inline constexpr char kConflictingConstraints[] = "ConflictingConstraints";
inline constexpr char kDisconnectedDevices[] = "DisconnectedDevices";
inline constexpr char kEgressLimitExceeded[] = "EgressLimitExceeded";
inline constexpr char kInstanceTooLarge[] = "InstanceTooLarge";
inline constexpr char kInsufficientMemory[] = "InsufficientMemory";
inline constexpr char kNoExecutors[] = "NoExecutors";
inline constexpr char kNoOps[] = "NoOps";
inline constexpr char kNoWarmStartPlan[] = "NoWarmStartPlan";  // of planners that look near a known plan
inline constexpr char kNotAvailable[] = "NotAvailable";
inline constexpr char kOpTooLarge[] = "OpTooLarge";
inline constexpr char kPinConflict[] = "PinConflict";
inline constexpr char kPinMatchesNoOp[] = "PinMatchesNoOp";
inline constexpr char kRunningPlanInfeasible[] = "RunningPlanInfeasible";
inline constexpr char kTooFewExecutors[] = "TooFewExecutors";
inline constexpr char kTooManyDevices[] = "TooManyDevices";
inline constexpr char kTooManyReplicas[] = "TooManyReplicas";
inline constexpr char kTooManyStages[] = "TooManyStages";
inline constexpr char kUnknownDevice[] = "UnknownDevice";

// Whether it is said of a job and its devices before it is looked at who reads the data (PlanRequest::first_device): another one would be
// refused as well. A reason that is not known here may be cured by another.
inline bool HoldsForAnyDataStage(absl::string_view reason) {
  // Not constexpr: under UBSan gcc 12 takes the address of an array for no constant.
  static const absl::string_view kOnes[] = {kConflictingConstraints, kInstanceTooLarge, kNoExecutors,    kNoOps,
                                            kNotAvailable,           kOpTooLarge,       kPinMatchesNoOp, kTooFewExecutors,
                                            kTooManyDevices,         kTooManyReplicas,  kTooManyStages};
  return std::find(std::begin(kOnes), std::end(kOnes), reason) != std::end(kOnes);
}

}  // namespace fusionllm::scheduler::plan_errors
