// Simulated annealing of a grid whose columns are matched again at every boundary.
#pragma once

#include <cstdint>

#include "lib/scheduler/grid/grid_cost.h"
#include "lib/scheduler/grid/rng.h"

namespace fusionllm::scheduler::grid {

// The best grid met in `evaluations` moves from `start` (never a worse one), its columns aligned.
Grid Anneal(const GridProblem& problem, const Grid& start, int64_t evaluations, Rng& rng);

}  // namespace fusionllm::scheduler::grid
