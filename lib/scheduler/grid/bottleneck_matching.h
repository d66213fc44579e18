// The best perfect matching of two stages: its slowest pair is as fast as can be (arXiv 2206.01288, section 3.3; the paper's public
// artefact settles for a matching that need not be the best). Row after row along the augmenting path whose slowest pair is the fastest.
//
// Keeps its memory from one pair of stages to the next. Not thread-safe. Time: at most the cube of the matching's size, the square mostly.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "lib/scheduler/grid/grid_problem.h"

namespace fusionllm::scheduler::grid {

class BottleneckMatching {
 public:
  // Of stages of the problem's devices, which must outlive the matching.
  explicit BottleneckMatching(const GridProblem& problem);
  // Of `size` nodes with as many, by a square matrix over all nodes (row-major), which must outlive the matching.
  BottleneckMatching(const std::vector<double>& seconds, int size);

  // The least t such that a perfect matching uses only pairs a[i], b[j] of at most t. A value above `limit` may be any lower bound of it,
  // found sooner; there is no matching then. Nodes may stand in a or b more than once.
  double Solve(std::span<const int> a, std::span<const int> b, double limit = std::numeric_limits<double>::infinity());

  // b as it was given to the last Solve, in the order in which it is matched with a.
  std::vector<int> Matched(const std::vector<int>& b) const;

 private:
  double Bound(std::span<const int> a, std::span<const int> b, double limit);
  bool Augment(int row, double limit, double& slowest);

  const std::vector<double>& seconds_;
  const int nodes_, size_;
  std::vector<double> weight_;           // [row][column]
  std::vector<double> min_;              // by column: to it from the rows of the tree that is being grown
  std::vector<int> from_;                // by column: the row that min_ is of
  std::vector<int> row_of_, column_of_;  // -1: free
  std::vector<int> open_;                // columns outside the tree
};

}  // namespace fusionllm::scheduler::grid
