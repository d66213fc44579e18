#include "lib/scheduler/grid/grid_cost.h"

#include <algorithm>
#include <utility>

#include "lib/scheduler/grid/bottleneck_matching.h"
#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler::grid {
namespace {

constexpr int kPathStarts = 16;  // of the heuristic, spread over the nodes

// Held and Karp's dynamic programme: best[mask][last].
class ExactPath {
 public:
  ExactPath(const std::vector<double>& weights, int n) : weights_(weights), n_(n), best_((size_t{1} << n) * n, kInfinity) {
    for (int i = 0; i < n; ++i) At(1u << i, i) = 0;
    for (uint32_t mask = 1; mask < (1u << n); ++mask) {
      for (int last = 0; last < n; ++last) {
        const double here = At(mask, last);
        if (here == kInfinity) continue;
        for (int next = 0; next < n; ++next) {
          if (mask >> next & 1) continue;
          double& there = At(mask | 1u << next, next);
          there = std::min(there, here + weights[last * n + next]);
        }
      }
    }
  }

  Path Best() {
    uint32_t mask = (1u << n_) - 1;
    int last = 0;
    for (int i = 1; i < n_; ++i) {
      if (At(mask, i) < At(mask, last)) last = i;
    }
    Path path{.length = At(mask, last)};
    while (true) {
      path.order.push_back(last);
      const uint32_t rest = mask & ~(1u << last);
      if (rest == 0) break;
      int before = -1;
      for (int i = 0; i < n_; ++i) {
        if ((rest >> i & 1) && (before < 0 || At(rest, i) + weights_[i * n_ + last] < At(rest, before) + weights_[before * n_ + last]))
          before = i;
      }
      mask = rest;
      last = before;
    }
    std::reverse(path.order.begin(), path.order.end());
    return path;
  }

 private:
  double& At(uint32_t mask, int last) { return best_[static_cast<size_t>(mask) * n_ + last]; }

  const std::vector<double>& weights_;
  const int n_;
  std::vector<double> best_;
};

double Length(const std::vector<double>& weights, int n, const std::vector<int>& order) {
  double length = 0;
  for (int i = 1; i < n; ++i) length += weights[order[i - 1] * n + order[i]];
  return length;
}

std::vector<int> NearestNeighbours(const std::vector<double>& weights, int n, int start) {
  std::vector<int> order = {start};
  std::vector<bool> seen(n);
  seen[start] = true;
  while (static_cast<int>(order.size()) < n) {
    int best = -1;
    for (int next = 0; next < n; ++next) {
      if (!seen[next] && (best < 0 || weights[order.back() * n + next] < weights[order.back() * n + best])) best = next;
    }
    seen[best] = true;
    order.push_back(best);
  }
  return order;
}

// Reversals of a part (2-opt) until none helps.
void Improve(const std::vector<double>& weights, int n, std::vector<int>& order) {
  // The path's ends have no edge.
  const auto edge = [&](int i, int j) { return i < 0 || j >= n ? 0.0 : weights[order[i] * n + order[j]]; };
  for (bool better = true; better;) {
    better = false;
    for (int i = 0; i < n - 1; ++i) {
      for (int j = i + 1; j < n; ++j) {
        const double before = edge(i - 1, i) + edge(j, j + 1);
        const double after = edge(i - 1, j) + edge(i, j + 1);
        if (after < before - 1e-12) {
          std::reverse(order.begin() + i, order.begin() + j + 1);
          better = true;
        }
      }
    }
  }
}

}  // namespace

Cost ScoreGrid(const GridProblem& problem, const Grid& grid) {
  Cost cost;
  for (size_t row = 0; row < grid.size(); ++row) {
    for (const int device : grid[row]) {
      double sum = 0;
      for (const int peer : grid[row]) sum += device == peer ? 0 : problem.peer_s(device, peer);
      cost.data_parallel_s = std::max(cost.data_parallel_s, sum);
    }
    if (row == 0) continue;
    double slowest = 0;
    for (size_t column = 0; column < grid[row].size(); ++column)
      slowest = std::max(slowest, problem.boundary_s(grid[row - 1][column], grid[row][column]));
    cost.pipeline_s += slowest;
  }
  return cost;
}

Path CheapestPath(const std::vector<double>& weights, int n) {
  if (n <= kExactPathNodes) return ExactPath(weights, n).Best();
  Path best{.length = kInfinity};
  for (int i = 0; i < std::min(n, kPathStarts); ++i) {
    const int start = static_cast<int>(static_cast<int64_t>(i) * n / std::min(n, kPathStarts));
    std::vector<int> order = NearestNeighbours(weights, n, start);
    Improve(weights, n, order);
    const double length = Length(weights, n, order);
    if (length < best.length) best = {std::move(order), length};
  }
  return best;
}

Grid OrderPartition(const GridProblem& problem, const Grid& partition) {
  const int n = static_cast<int>(partition.size());
  std::vector<double> weights(static_cast<size_t>(n) * n);
  BottleneckMatching matching(problem);
  for (int i = 0; i < n; ++i) {
    for (int j = i + 1; j < n; ++j) weights[i * n + j] = weights[j * n + i] = matching.Solve(partition[i], partition[j]);
  }
  Grid grid;
  for (const int stage : CheapestPath(weights, n).order) {
    if (!grid.empty()) matching.Solve(grid.back(), partition[stage]);
    grid.push_back(grid.empty() ? partition[stage] : matching.Matched(partition[stage]));
  }
  return grid;
}

}  // namespace fusionllm::scheduler::grid
