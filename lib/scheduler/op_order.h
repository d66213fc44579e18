// The order in which a pipeline cuts the graph: stages are consecutive runs of one topological order, so the graph over stages can never
// have a cycle. Which order matters: a good one keeps little alive at the positions where it may be cut.
#pragma once

#include <vector>

#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler {

// Positions -> ops. Placeholders come first (data enters in the first stage), other ops without inputs stand just before their first
// consumer. Of the order given and a depth-first order that keeps branches together, the one with the fewer bytes alive over all cuts
// (the one given when they tie). The request must be valid.
std::vector<int> OrderOps(const PlanRequest& request);

// True when no other topological order has other prefixes from the first op after the placeholders on: then cutting this one is all that
// stages in a row can be.
bool IsOnlyOrder(const PlanRequest& request, const std::vector<int>& order);

// Sum over cut positions of the bytes made before and read after them.
double AliveBytes(const PlanRequest& request, const std::vector<int>& order);

}  // namespace fusionllm::scheduler
