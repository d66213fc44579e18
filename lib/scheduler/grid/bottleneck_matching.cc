#include "lib/scheduler/grid/bottleneck_matching.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler::grid {
namespace {}  // namespace

BottleneckMatching::BottleneckMatching(const GridProblem& problem) : BottleneckMatching(problem.boundaries(), problem.pipelines()) {}

BottleneckMatching::BottleneckMatching(const std::vector<double>& seconds, int size)
    : seconds_(seconds),
      nodes_(static_cast<int>(std::lround(std::sqrt(static_cast<double>(seconds.size()))))),
      size_(size),
      weight_(static_cast<size_t>(size) * size),
      min_(size),
      from_(size),
      row_of_(size),
      column_of_(size),
      open_(size) {}

// Every row and every column needs at least its fastest pair. Above the limit as soon as that is known.
double BottleneckMatching::Bound(std::span<const int> a, std::span<const int> b, double limit) {
  double bound = 0;
  std::fill(min_.begin(), min_.end(), kInfinity);
  for (int i = 0; i < size_; ++i) {
    const double* const from = &seconds_[static_cast<size_t>(a[i]) * nodes_];
    double* const weights = &weight_[static_cast<size_t>(i) * size_];
    double least = kInfinity;
    for (int j = 0; j < size_; ++j) {
      const double weight = from[b[j]];
      weights[j] = weight;
      least = std::min(least, weight);
      min_[j] = std::min(min_[j], weight);
    }
    bound = std::max(bound, least);
    if (bound > limit) return bound;
  }
  return std::max(bound, *std::max_element(min_.begin(), min_.end()));
}

double BottleneckMatching::Solve(std::span<const int> a, std::span<const int> b, double limit) {
  double slowest = Bound(a, b, limit);
  if (slowest > limit) return slowest;
  std::fill(row_of_.begin(), row_of_.end(), -1);
  std::fill(column_of_.begin(), column_of_.end(), -1);
  for (int row = 0; row < size_; ++row) {
    const double* const weights = &weight_[static_cast<size_t>(row) * size_];
    for (int column = 0; column < size_; ++column) {
      if (row_of_[column] >= 0 || weights[column] > slowest) continue;
      row_of_[column] = row;
      column_of_[row] = column;
      break;
    }
  }
  for (int row = 0; row < size_; ++row) {
    if (column_of_[row] < 0 && !Augment(row, limit, slowest)) break;
  }
  return slowest;
}

// Grows the tree of columns that the row reaches by alternating paths, the fastest pair first, until one is free. What is slower than
// `slowest` is taken only when nothing else leaves the tree, so that no matching of the rows so far could do without. False when that is
// above the limit.
bool BottleneckMatching::Augment(int row, double limit, double& slowest) {
  open_.resize(size_);
  std::iota(open_.begin(), open_.end(), 0);
  std::copy_n(weight_.begin() + static_cast<ptrdiff_t>(row) * size_, size_, min_.begin());
  std::fill(from_.begin(), from_.end(), row);
  while (true) {
    size_t nearest = 0;
    for (size_t i = 1; i < open_.size(); ++i) {
      if (min_[open_[i]] < min_[open_[nearest]]) nearest = i;
    }
    int column = open_[nearest];
    slowest = std::max(slowest, min_[column]);
    if (slowest > limit) return false;
    if (row_of_[column] < 0) {
      for (int parent = -1; parent != row;) {
        parent = from_[column];
        row_of_[column] = parent;
        std::swap(column_of_[parent], column);
      }
      return true;
    }
    open_[nearest] = open_.back();
    open_.pop_back();
    const int next = row_of_[column];
    const double* const weights = &weight_[static_cast<size_t>(next) * size_];
    for (const int other : open_) {
      if (weights[other] >= min_[other]) continue;
      min_[other] = weights[other];
      from_[other] = next;
    }
  }
}

std::vector<int> BottleneckMatching::Matched(const std::vector<int>& b) const {
  std::vector<int> matched(b.size());
  for (int column = 0; column < size_; ++column) matched[row_of_[column]] = b[column];
  return matched;
}

}  // namespace fusionllm::scheduler::grid
