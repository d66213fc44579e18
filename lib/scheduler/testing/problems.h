// What a planner searches, and what it calls the best, for tests and benchmarks of plans.
#pragma once

#include <memory>
#include <variant>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler::testing {

// Of a request that is not refused.
inline std::unique_ptr<Problem> ProblemOf(const PlanRequest& request) {
  return std::get<std::unique_ptr<Problem>>(Problem::Create(request).value());
}

// What planners make as small as they can.
inline double CostOf(const PlannedPipeline& plan) {
  double loss = 0;
  for (const PlannedLink& link : plan.links) loss += link.loss_cost;
  return plan.predicted_step_s * (1 + kTimePerNat * loss);
}

}  // namespace fusionllm::scheduler::testing
