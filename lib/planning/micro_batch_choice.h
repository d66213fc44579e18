// Chooses the micro-batch size of a job that leaves it to the planner, and says of one that is refused for memory what would fit.
//
// As plan_workload.h, which calls it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "lib/planning/plan_workload.h"

namespace fusionllm::planning {

// By how much of a step's time a size must be better than the one that the job came with, at which its devices were measured: a choice by
// less would be one by the noise of a measurement, and another run of the same job would have other bits.
inline constexpr double kMinSizeGain = 0.02;

// The plan with the least time to an equal loss over all sizes (docs/design/adr/0028); `workload` of the answer is the job at that size.
// Where no size has a plan, the refusal of the smallest.
absl::StatusOr<PlannedWorkload> PlanWithBestMicroBatchSize(const workload::Workload& workload, const Profiles& profiles,
                                                           const PlanOptions& options);

// For a job that was refused for want of memory: "; with spec.training.microBatchSize=2 it would fit". Empty: nothing was found to help.
absl::StatusOr<std::string> MemoryHint(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options);

}  // namespace fusionllm::planning
