// The plan of what a planner answers: by name, of a step instead of a micro-batch, with what it means for the job. Pure functions;
// thread-safe.
#pragma once

#include "lib/plan/plan.h"
#include "lib/planning/request.h"
#include "lib/runtime/stage_program.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// What a plan was made for.
struct PlanContext {
  const workload::Workload& workload;
  const Request& request;
  runtime::Recompute recompute = runtime::Recompute::kNone;
  bool explain = false;  // keep the planner's sentences
};

// cpu_seconds: of the search.
plan::Plan PlanOfPipeline(const scheduler::PlannedPipeline& plan, const PlanContext& context, double cpu_seconds);
plan::PlanError WithSearchTime(plan::PlanError refusal, double cpu_seconds);
plan::PlanResult PlanResultOf(const scheduler::PlanOutcome& outcome, const PlanContext& context, double cpu_seconds);

}  // namespace fusionllm::planning
