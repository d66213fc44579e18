// A plan found along one topological order of the ops, cut again over all order ideals of the graph. Where branches run side by side
// another order may have better cuts.
//
// Pure and deterministic; thread-safe. Cost: nothing where there is one order only; else CutOverIdeals and a twentieth of the search's
// budget for each of a few orders.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/warm_start.h"

namespace fusionllm::scheduler {

struct Reordered {
  PlanRequest request;  // with its `order`; borrowed by the problem
  std::unique_ptr<Problem> problem;
  Assignment assignment;
};

// The best of what was found on the devices of `found`, which is feasible; null when nothing is better, when the request says what the
// order is, or when the graph has more than a thousand ideals or too many for so many stages.
std::unique_ptr<Reordered> BetterOrder(const Problem& problem, Evaluator& evaluator, const Assignment& found);

// Stages by their sizes and devices. Precondition: the request has the devices, and an order of which the stages are consecutive runs.
Assignment ContiguousAssignment(const PlanRequest& request, const std::vector<NamedStage>& stages);

// The stages of a plan of the same request, along an order of which they are consecutive runs; null where OrderOfStages has none.
std::unique_ptr<Reordered> ReorderedAs(const Problem& problem, const std::vector<NamedStage>& stages);

// An order of the request's ops of which the stages are consecutive runs; nothing where they are runs of the planner's own order, or of
// none.
std::optional<std::vector<int>> OrderOfStages(const PlanRequest& request, const std::vector<NamedStage>& stages);

}  // namespace fusionllm::scheduler
