// What a grid costs (arXiv 2206.01288, section 3): COMM = DATAP + PIPELINEP.
//
//   DATAP     = max over devices of the sum of peer_s to the other devices of its stage                                   (eq. 2)
//   PIPELINEP = cheapest path through all stages; two neighbouring stages cost what the best perfect matching of their devices leaves as
//               its slowest pair (section 3.3)
//
// Pure functions, deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/scheduler/grid/grid_problem.h"

namespace fusionllm::scheduler::grid {

struct Cost {
  double data_parallel_s = 0;
  double pipeline_s = 0;
  double total_s() const { return data_parallel_s + pipeline_s; }
};

// A grid as it stands: rows neighbours in their order, pairs those of the same column.
Cost ScoreGrid(const GridProblem& problem, const Grid& grid);

// Order and length of a cheapest path through all n nodes of a symmetric weight matrix (row-major, n x n). Exact up to kExactPathNodes
// (dynamic programme over subsets), above that nearest neighbours improved by reversals.
inline constexpr int kExactPathNodes = 12;
struct Path {
  std::vector<int> order;
  double length = 0;
};
Path CheapestPath(const std::vector<double>& weights, int n);
// The grid that realises a partition's cost: rows in path order, each aligned with the row before it.
Grid OrderPartition(const GridProblem& problem, const Grid& partition);

}  // namespace fusionllm::scheduler::grid
