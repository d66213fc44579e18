// What a plan means for its job: rates, bytes between sites, what limits a step, what compression may cost, and what a user should know
// before training. Pure functions; thread-safe. Cost: some dozens of simulations, fewer of long ones.
#pragma once

#include <vector>

#include "lib/plan/plan.h"
#include "lib/planning/plan_of_pipeline.h"
#include "lib/scheduler/replicas/replica_planner.h"

namespace fusionllm::planning {

// Into the document of that plan.
void AddFigures(const scheduler::PlannedPipeline& plan, const PlanContext& context, plan::Plan& document);

// Into the document of all pipelines together; `pipelines`: those of each, with their figures.
void AddReplicaFigures(const scheduler::replicas::ReplicaPlan& plan, const PlanContext& context, const std::vector<plan::Plan>& pipelines,
                       plan::Plan& document);

}  // namespace fusionllm::planning
