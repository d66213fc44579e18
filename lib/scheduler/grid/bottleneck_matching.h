// The best perfect matching of two stages: its slowest pair is as fast as can be (arXiv 2206.01288, section 3.3; the paper's public
// artefact settles for a matching that need not be the best). Threshold search over augmenting paths.
//
// Keeps its memory from one pair of stages to the next. Not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lib/scheduler/grid/grid_problem.h"

namespace fusionllm::scheduler::grid {

class BottleneckMatching {
 public:
  // `problem` must outlive the matching.
  explicit BottleneckMatching(const GridProblem& problem);

  // The least t such that a perfect matching uses only pairs with boundary_s(a[i], b[j]) <= t; both as long as the problem has pipelines.
  // A value above `limit` may be any lower bound of it, found sooner; there is no matching then.
  double Solve(const std::vector<int>& a, const std::vector<int>& b, double limit = std::numeric_limits<double>::infinity());

  // b as it was given to the last Solve, in the order in which it is matched with a.
  std::vector<int> Matched(const std::vector<int>& b) const;

 private:
  bool Perfect(double threshold);
  bool Augment(int row);

  const GridProblem& problem_;
  const int n_, words_;
  std::vector<double> weight_;            // [row][column]
  std::vector<double> values_;            // distinct weights above the lower bound
  std::vector<uint64_t> edges_, unseen_;  // bits of columns
  std::vector<int> row_of_;               // by column; -1: free
};

}  // namespace fusionllm::scheduler::grid
