// Why there is no plan with replicas, for tests.
#pragma once

#include <variant>

#include "lib/scheduler/replicas/replica_planner.h"

namespace fusionllm::scheduler::testing {

inline PlanError PlanErrorFor(const PlanRequest& request, int count, const char* planner = "op-fence") {
  return std::get<PlanError>(replicas::PlanReplicas(planner, request, count).value());
}

}  // namespace fusionllm::scheduler::testing
