#include "lib/scheduler/grid/kind_costs.h"

#include <algorithm>
#include <cmath>

#include "lib/scheduler/grid/rng.h"

namespace fusionllm::scheduler::grid {
namespace {

// Remembered at a time: as much as a processor's second cache holds.
constexpr size_t kStages = size_t{1} << 15, kBoundaries = size_t{1} << 16;

bool SameCosts(const GridProblem& problem, int a, int b) {
  for (int c = 0; c < problem.devices(); ++c) {
    if (c == a || c == b) continue;
    if (problem.boundary_s(a, c) != problem.boundary_s(b, c) || problem.peer_s(a, c) != problem.peer_s(b, c)) return false;
  }
  return true;
}

}  // namespace

KindCosts::KindCosts(const GridProblem& problem) : kind_(problem.devices()), stages_(kStages), boundaries_(kBoundaries) {
  // Of each kind the first device, and the last one: of one alone, itself, whose cost to itself is not asked for.
  std::vector<int> first, last;
  Rng rng(1);
  for (int device = 0; device < problem.devices(); ++device) {
    const auto known = std::find_if(first.begin(), first.end(), [&](int other) { return SameCosts(problem, device, other); });
    kind_[device] = static_cast<int>(known - first.begin());
    if (known == first.end()) {
      first.push_back(device);
      last.push_back(device);
      number_.push_back(rng.Bits());
    } else {
      last[kind_[device]] = device;
    }
  }
  kinds_ = static_cast<int>(first.size());
  for (int a = 0; a < kinds_; ++a) {
    for (int b = 0; b < kinds_; ++b) {
      peer_s_.push_back(problem.peer_s(first[a], last[b]));
      boundary_s_.push_back(problem.boundary_s(first[a], last[b]));
    }
  }
  matching_.emplace(boundary_s_, problem.pipelines());
}

double KindCosts::StageSeconds(uint64_t key, std::span<const int> row) {
  Stage& known = stages_[(key >> 20) % kStages];
  if (known.key == key) return known.seconds;
  known = {key, 0};
  for (size_t i = 0; i < row.size(); ++i) {
    double sum = 0;
    for (size_t j = 0; j < row.size(); ++j) sum += i == j ? 0 : peer_s_[static_cast<size_t>(row[i]) * kinds_ + row[j]];
    known.seconds = std::max(known.seconds, sum);
  }
  return known.seconds;
}

double KindCosts::BoundarySeconds(uint64_t key_a, std::span<const int> a, uint64_t key_b, std::span<const int> b, double limit) {
  const uint64_t low = std::min(key_a, key_b), high = std::max(key_a, key_b);
  const uint64_t keys = low * 0x9E3779B97F4A7C15ULL ^ (high + (low >> 29));
  Boundary& known = boundaries_[(keys >> 32) % kBoundaries];
  if (known.keys == keys && (known.seconds >= 0 || -known.seconds > limit)) return std::abs(known.seconds);
  const double seconds = matching_->Solve(a, b, limit);
  known = {keys, seconds > limit ? -seconds : seconds};
  return seconds;
}

}  // namespace fusionllm::scheduler::grid
