#include "lib/scheduler/grid/bottleneck_matching.h"

#include <algorithm>

namespace fusionllm::scheduler::grid {

BottleneckMatching::BottleneckMatching(const GridProblem& problem)
    : problem_(problem), n_(problem.pipelines()), words_((n_ + 63) / 64), weight_(static_cast<size_t>(n_) * n_) {}

double BottleneckMatching::Solve(const std::vector<int>& a, const std::vector<int>& b, double limit) {
  // Every row and every column needs at least its cheapest pair.
  double bound = 0;
  for (int i = 0; i < n_; ++i) {
    double least = std::numeric_limits<double>::infinity();
    for (int j = 0; j < n_; ++j) least = std::min(least, weight_[i * n_ + j] = problem_.boundary_s(a[i], b[j]));
    bound = std::max(bound, least);
  }
  for (int j = 0; j < n_; ++j) {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < n_; ++i) least = std::min(least, weight_[i * n_ + j]);
    bound = std::max(bound, least);
  }
  if (bound > limit || Perfect(bound)) return bound;
  if (limit < std::numeric_limits<double>::infinity() && !Perfect(limit)) {
    double above = std::numeric_limits<double>::infinity();
    for (const double value : weight_) above = value > limit ? std::min(above, value) : above;
    return above;
  }
  values_.clear();
  for (const double value : weight_) {
    if (value > bound) values_.push_back(value);
  }
  std::sort(values_.begin(), values_.end());
  values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
  size_t low = 0, high = values_.size() - 1;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (Perfect(values_[middle])) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  Perfect(values_[low]);
  return values_[low];
}

std::vector<int> BottleneckMatching::Matched(const std::vector<int>& b) const {
  std::vector<int> matched(b.size());
  for (int column = 0; column < n_; ++column) matched[row_of_[column]] = b[column];
  return matched;
}

bool BottleneckMatching::Perfect(double threshold) {
  edges_.assign(static_cast<size_t>(n_) * words_, 0);
  for (int i = 0; i < n_; ++i) {
    for (int j = 0; j < n_; ++j) edges_[i * words_ + j / 64] |= uint64_t{weight_[i * n_ + j] <= threshold} << (j % 64);
  }
  row_of_.assign(n_, -1);
  for (int row = 0; row < n_; ++row) {
    unseen_.assign(words_, ~uint64_t{0});
    if (!Augment(row)) return false;
  }
  return true;
}

bool BottleneckMatching::Augment(int row) {
  for (int word = 0; word < words_; ++word) {
    while (const uint64_t open = edges_[row * words_ + word] & unseen_[word]) {
      const int bit = __builtin_ctzll(open);
      const int column = word * 64 + bit;
      unseen_[word] &= ~(uint64_t{1} << bit);
      if (row_of_[column] < 0 || Augment(row_of_[column])) {
        row_of_[column] = row;
        return true;
      }
    }
  }
  return false;
}

}  // namespace fusionllm::scheduler::grid
