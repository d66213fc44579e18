// Sentences about a plan with several pipelines. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "lib/scheduler/problem.h"
#include "lib/scheduler/replicas/replica_planner.h"

namespace fusionllm::scheduler::replicas {

// How the step comes about, how each stage adds up its gradients, then what every pipeline's own plan says.
std::vector<std::string> ExplainReplicas(const Problem& problem, const ReplicaPlan& plan);

}  // namespace fusionllm::scheduler::replicas
