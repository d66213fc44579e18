// The simulated step of several pipelines side by side, put together from those of each: the slowest decides, then the gradients are added
// up (lib/scheduler/replicas/all_reduce.h), without overlap.
//
// Pure functions.
#pragma once

#include <vector>

#include "lib/scheduler/replicas/replica_planner.h"
#include "lib/scheduler/timeline.h"
#include "lib/wire/simulation_json.h"

namespace fusionllm::planning {

// `pipelines`: by replica, at least one. What several pipelines share is busy for each of them in turn; waiting for the others and for the
// gradients counts as idle.
wire::SimulatedStep ReplicaStep(const std::vector<wire::SimulatedStep>& pipelines, const scheduler::replicas::ReplicaPlan& plan);

// The rows of every pipeline one after another, then those of the chains.
scheduler::Timeline ReplicaTimeline(std::vector<scheduler::Timeline> pipelines, const scheduler::replicas::ReplicaPlan& plan);

}  // namespace fusionllm::planning
