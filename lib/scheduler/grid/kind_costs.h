// What stages and boundaries cost by the kinds of their devices, remembered: searches ask for the same ones over and over.
//
// Devices that no cost tells apart are of one kind, so that stages of the same kinds cost the same. A stage is known by its key, the sum of
// its kinds' numbers. Not thread-safe. Memory: 16 bytes x the square of the kinds, and one and a half MiB.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/scheduler/grid/bottleneck_matching.h"
#include "lib/scheduler/grid/grid_problem.h"

namespace fusionllm::scheduler::grid {

class KindCosts {
 public:
  // `problem` need not outlive this.
  explicit KindCosts(const GridProblem& problem);
  KindCosts(const KindCosts&) = delete;
  KindCosts& operator=(const KindCosts&) = delete;

  int kind(int device) const { return kind_[device]; }
  uint64_t number(int kind) const { return number_[kind]; }
  double boundary_s(int a, int b) const { return boundary_s_[static_cast<size_t>(a) * kinds_ + b]; }

  // Rows are kinds of devices, `key` the sum of their numbers. The largest sum of peer_s from one device to the others.
  double StageSeconds(uint64_t key, std::span<const int> row);
  // The slowest pair of the best matching; when that is above the limit, some lower bound of it above the limit.
  double BoundarySeconds(uint64_t key_a, std::span<const int> a, uint64_t key_b, std::span<const int> b, double limit);

 private:
  struct Stage {
    uint64_t key = 0;
    double seconds = 0;
  };
  struct Boundary {
    uint64_t keys = 0;
    double seconds = 0;  // below nought: less that, or more
  };

  int kinds_ = 0;
  std::vector<int> kind_;         // by device
  std::vector<uint64_t> number_;  // by kind
  std::vector<double> peer_s_, boundary_s_;
  std::vector<Stage> stages_;
  std::vector<Boundary> boundaries_;
  std::optional<BottleneckMatching> matching_;  // over boundary_s_
};

}  // namespace fusionllm::scheduler::grid
