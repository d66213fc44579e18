#include "lib/scheduler/bounds.h"

#include <algorithm>
#include <limits>

namespace fusionllm::scheduler {
namespace {

// Sums in another order than the simulator's may differ in the last bits; a bound must not exceed the truth for that.
constexpr double kRounding = 1 - 1e-9;

// By device kind: usable devices of the same cost class differ only by their scale, so only the fastest of a class can be the minimum.
std::vector<int> FastestOfEachClass(const Problem& problem) {
  std::vector<int> fastest;
  for (int device : problem.usable()) {
    const Device& d = problem.request().devices[device];
    const auto same =
        std::find_if(fastest.begin(), fastest.end(), [&](int f) { return problem.request().devices[f].cost_class == d.cost_class; });
    if (same == fastest.end()) {
      fastest.push_back(device);
    } else if (d.time_scale < problem.request().devices[*same].time_scale) {
      *same = device;
    }
  }
  return fastest;
}

// For any weights w >= 0, max load >= sum(w load) / sum(w) >= sum over ops of min(w t) / sum(w). With w = 1 / (time of the whole model)
// this is work / speed for devices that differ by a factor. min(w t) depends on the class alone: the scale cancels.
double BalancedSeconds(const Problem& problem, const std::vector<int>& kinds) {
  const int n = problem.positions();
  const auto whole = [&](int device) { return problem.ForwardSeconds(0, n, device) + problem.BackwardSeconds(0, n, device); };
  std::vector<double> speeds;
  for (int device : problem.usable()) {
    if (whole(device) <= 0) return 0;
    speeds.push_back(1 / whole(device));
  }
  std::sort(speeds.rbegin(), speeds.rend());
  double speed = 0;
  for (int k = 0; k < problem.max_stages(); ++k) speed += speeds[k];
  double work = 0;
  for (int p = 0; p < n; ++p) {
    double least = std::numeric_limits<double>::infinity();
    for (int device : kinds) {
      least = std::min(least, (problem.ForwardSeconds(p, p + 1, device) + problem.BackwardSeconds(p, p + 1, device)) / whole(device));
    }
    work += least;
  }
  return work / speed;
}

}  // namespace

double LeastBottleneckSeconds(const Problem& problem) {
  const std::vector<int> kinds = FastestOfEachClass(problem);
  double largest_op_s = 0;
  for (int p = 0; p < problem.positions(); ++p) {
    double least_s = std::numeric_limits<double>::infinity();
    for (int device : kinds)
      least_s = std::min(least_s, problem.ForwardSeconds(p, p + 1, device) + problem.BackwardSeconds(p, p + 1, device));
    largest_op_s = std::max(largest_op_s, least_s);
  }
  return std::max(largest_op_s, BalancedSeconds(problem, kinds));
}

double LowerBoundSeconds(const Problem& problem) {
  const std::vector<int> kinds = FastestOfEachClass(problem);
  const int n = problem.positions();
  std::vector<double> least_s(n), path_s(n, 0);
  for (int p = 0; p < n; ++p) {
    least_s[p] = std::numeric_limits<double>::infinity();
    for (int device : kinds)
      least_s[p] = std::min(least_s[p], problem.ForwardSeconds(p, p + 1, device) + problem.BackwardSeconds(p, p + 1, device));
  }
  // Backward runs the same path in reverse only over differentiable values: a path counts as far as gradients flow.
  std::vector<std::vector<int>> inputs(n);
  for (const ChainValue& value : problem.values()) {
    if (!value.differentiable) continue;
    for (int consumer : value.consumers) inputs[consumer].push_back(value.producer);
  }
  double longest_s = 0;
  for (int p = 0; p < n; ++p) {
    for (int producer : inputs[p]) path_s[p] = std::max(path_s[p], path_s[producer]);
    path_s[p] += least_s[p];
    longest_s = std::max(longest_s, path_s[p]);
  }
  const double bottleneck_s = LeastBottleneckSeconds(problem);
  return std::max(problem.request().micro_batches * bottleneck_s, longest_s) * kRounding + problem.request().step_overhead_s * kRounding;
}

}  // namespace fusionllm::scheduler
