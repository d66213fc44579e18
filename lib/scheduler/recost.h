// A plan's stages under another snapshot of the same job: links that became slower, a device that lags, another codec. What a run that goes
// on as it is would take, to hold against what re-planning gives.
//
// Pure functions. Cost: a Problem and a handful of simulations.
#pragma once

#include "absl/status/statusor.h"
#include "lib/scheduler/planned_pipeline.h"

namespace fusionllm::scheduler {

enum class RecostMode {
  kCodecsAndDepths,  // the plan as it is; equal snapshots give the very step time of the plan
  kStagesOnly,  // the same ops on the same devices, codecs and depths chosen again: for a job with another codec, schedule or micro-batch
};

// `request` has the plan's ops, by name, and its devices; its constraints (pins, number of stages, ...) are not looked at, but for
// exclusions. The result has neither bounds nor `explain`.
// Errors: FailedPrecondition, saying why the stages cannot run so: an op or device that is not there or excluded, a missing link, memory;
// InvalidArgument as Validate.
absl::StatusOr<PlannedPipeline> RecostPlan(const PlanRequest& request, const PlannedPipeline& plan, RecostMode keep);

}  // namespace fusionllm::scheduler
