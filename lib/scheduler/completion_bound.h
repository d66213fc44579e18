// How fast a pipeline can be whose first stages are fixed: what the exact planner prunes by.
//
// The rest of the ops goes to the rest of the devices in whatever way is fastest when stages interact only by the time that one micro-batch
// takes along the pipeline and back. Then a step lasts at least
//   for a stage or shared link: the way there and back of one micro-batch, and the stage or shared link m times;
//   for a stage:          one micro-batch through everything behind it and back, and m - 1 of its forwards (or backwards; under GPipe
//   both); for a stage that can hold only k micro-batches: that round trip once for every k of them.
// Stages interact so along cuts where the op before is read by the op behind, with a gradient; across other cuts nothing is added up.
//
// One thread; borrows the Problem. Answers are remembered, for each (set of devices, last device, cut) that was asked for; beyond 16
// devices sets are forgotten, which may use a device twice and so bounds less.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

class CompletionBound {
 public:
  // Segments that keep a device busy for longer than `max_s` in a step need not be considered (bounds are infinite then).
  CompletionBound(const Problem& problem, double max_s);

  // A run of ops on a device; what it takes at least.
  struct Segment {
    bool fits = false;
    double forward_s = 0, backward_s = 0;
    int64_t rounds = 1;  // round trips in a step, for want of memory
    double both_s() const { return forward_s + backward_s; }
  };
  Segment SegmentOf(int begin, int end, int device) const;

  // What goes from one stage to the next, bytes: of values that a codec may touch, of others, of gradients back.
  struct Traffic {
    int64_t lossy = 0, lossless = 0, gradient = 0;
    void Add(const ChainValue& value);
  };
  // One micro-batch to `to` and back; slowest_s: of the two directions.
  struct Crossing {
    bool possible = true;
    bool chained = false;  // the stages wait for each other
    double both_s = 0, slowest_s = 0;
  };
  Crossing CrossingOf(const Traffic& traffic, int from, int to) const;
  // What a codec leaves of it at least.
  double MinBytes(int64_t lossy, int64_t lossless) const {
    return static_cast<double>(lossy) / problem_.max_direction_ratio() + static_cast<double>(lossless);
  }

  struct Completion {
    double fill_s = 0;  // one micro-batch across the cut, through the rest and back
    double step_s = 0;  // of a step, from the first forward behind the cut; the crossing counts
  };
  // Of ops from `cut` on, when `used` (bits of indices into Problem::usable()) have stages already, `last` (an index too) the last of them.
  // Infinite when there is no way; nought when the work has reached its limit, of which no more can be said.
  Completion After(int cut, uint32_t used, int last);

  // m - 1 times what a stage or shared link is busy besides its part of one micro-batch's way.
  double Repeats(const Segment& segment) const;
  // Whether the stages before and behind the cut wait for each other.
  bool Chained(int cut) const { return adjacent_[cut].gradient > 0; }
  // Whether the device is as good as one with a lower index that is not used either: both in turn give the same plans.
  bool IsSymmetric(int device, uint32_t used) const {
    return symmetric_before_[device] >= 0 && (used >> symmetric_before_[device] & 1) == 0;
  }

  // Segments looked at, and how many may be.
  int64_t work() const { return work_; }
  void AddWork(int64_t steps) { work_ += steps; }
  bool BudgetExhausted() const { return work_ >= max_work_; }
  void LimitWork(int64_t max_work) { max_work_ = max_work; }
  double micro_batches() const { return micro_batches_; }

 private:
  void FindSymmetricDevices();
  Completion Search(int cut, uint32_t used, int last);

  const Problem& problem_;
  const double max_s_, micro_batches_;
  const bool sets_;
  std::vector<Traffic> adjacent_;      // by cut: of values made just before it and read just behind it
  std::vector<int64_t> buffers_;       // by cut: what these need in memory on either side
  std::vector<int> symmetric_before_;  // by device: the one before it that nothing tells apart from it; -1: none
  absl::flat_hash_map<uint64_t, Completion> known_;
  int64_t work_ = 0, max_work_ = 0;
};

}  // namespace fusionllm::scheduler
