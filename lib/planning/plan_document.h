// What a planner says, as the document that travels. Pure functions; thread-safe.
#pragma once

#include "lib/plan/plan.h"
#include "lib/planning/request.h"
#include "lib/runtime/stage_program.h"
#include "lib/scheduler/plan.h"
#include "lib/workload/workload.h"

namespace fusionllm::planning {

// What a plan was made for.
struct PlanContext {
  const workload::Workload& workload;
  const Request& request;
  runtime::Recompute recompute = runtime::Recompute::kNone;
  bool explain = false;  // keep the planner's sentences
};

std::vector<plan::LowerBound> BoundsOf(const std::vector<scheduler::LowerBound>& bounds);
// cpu_seconds: of the search.
plan::Plan PlanDocumentOf(const scheduler::Plan& plan, const PlanContext& context, double cpu_seconds);
plan::PlanError PlanErrorDocumentOf(const scheduler::PlanError& refusal, double cpu_seconds);
plan::PlanResult PlanResultOf(const scheduler::PlanOutcome& outcome, const PlanContext& context, double cpu_seconds);

}  // namespace fusionllm::planning
