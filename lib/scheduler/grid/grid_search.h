// Planners of the allocation problem. All are functions of problem and seed: budgets count evaluations, never seconds.
#pragma once

#include <cstdint>

#include "lib/scheduler/grid/grid_cost.h"

namespace fusionllm::scheduler::grid {

struct GridPlan {
  Grid grid;
  Cost cost;  // ScoreGrid of it
  int64_t evaluations = 0;
};

// Devices dealt to the grid at random, as they fall.
GridPlan RandomGrid(const GridProblem& problem, uint64_t seed);

// DT-FM's own search (arXiv 2206.01288, section 4, and what its public artefact does where the paper is brief): a population of balanced
// partitions; a child of two is improved by cyclic moves that turn the fastest links inside stages into links between stages, and takes the
// place of the worse parent if it is no worse. `trials` counts children. The defaults are the study's. Unlike the artefact the matchings
// are right, the seed counts, a child is held against both parents, and the last cycle of moves can be the best one, too.
struct EvolutionOptions {
  int population = 100;
  int trials = 4900;
  int rounds = 1;  // of the local search, for each child
};
GridPlan Evolve(const GridProblem& problem, uint64_t seed, const EvolutionOptions& options = {});

// OP-Fence under this objective: communities of the network at every resolution laid across stages and along pipelines. The most promising
// and as many random grids are then annealed by swaps of devices, of pieces of pipelines through stages that are alike, of such pieces for
// devices of one stage, and reversals of stages, which cost a few matchings instead of one for every pair of stages.
struct FenceOptions {
  int starts = 12;                // grids that are annealed, at most
  int max_converged = 3;          // no more of them once so many have ended at one best cost: on easy networks they all do
  int64_t evaluations = 320'000;  // of each
};
GridPlan FenceGrid(const GridProblem& problem, uint64_t seed, const FenceOptions& options = {});

}  // namespace fusionllm::scheduler::grid
