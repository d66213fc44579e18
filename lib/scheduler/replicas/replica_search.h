// The search for the fastest grid: number of pipelines and stages, which device where, cuts.
//
// Starting allocations (starting_grids.h) for every shape, cut by ChainSearch in the order of the slowest replica of each stage and of
// single pipelines; the best are climbed from by swapping devices, replacing them by unused ones, shifting cuts, and one pipeline or stage
// more or fewer; then kicked by seed and climbed again. All judged by ReplicaEvaluator. The budget counts simulations, so equal requests
// give equal grids.
#pragma once

#include <optional>
#include <vector>

#include "lib/scheduler/replicas/replica_evaluator.h"
#include "lib/scheduler/replicas/starting_grids.h"

namespace fusionllm::scheduler::replicas {

// Costs this near to each other, as a share of one of them, are equal: sums in another order differ by less.
inline constexpr double kSameTime = 1e-9;

struct FoundGrid {
  ReplicaGrid grid;
  ReplicaEvaluation evaluation;  // with Effort::kFull
};

struct GridSearchResult {
  std::optional<FoundGrid> best;
  // Without a best: one that was judged, and why it cannot be.
  std::optional<FoundGrid> failed;
};

// Of the shapes given, none with fewer than two pipelines, nor more pipelines than micro-batches or devices than usable. Whatever there is
// when problem.Stopped().
GridSearchResult SearchGrids(ReplicaEvaluator& evaluator, const std::vector<GridShape>& shapes);

}  // namespace fusionllm::scheduler::replicas
