// Cuts the op chain for a given order of devices, by dynamic programming over compute, cut bytes at the best ratio allowed, and memory.
//
// Objective: the closed-form step time, sum of stage times and crossings + (micro_batches - 1) x the slowest of them. For a cap on the
// slowest, the least sum is a shortest path over (position, last device); the cap is swept over the range where it can pay, in steps of
// kCapStep, so the result is within that factor of the best for cuts on the grid. The grid holds the positions where little is alive.
//
// One thread; borrows the Problem. Cost: caps x grid x devices x (kinds of links (skipping) + cuts that a stage may reach back over).
// Memory: grid x (grid x 24 + devices x 32) bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

class ChainSearch {
 public:
  // `grid`: how many cut positions to consider at most.
  ChainSearch(const Problem& problem, int grid);

  struct Result {
    Assignment assignment;
    double sum_s = 0;  // fill: stages and crossings once
    double estimate_s = 0;
  };
  // Candidates, best estimate first, at most `limit`. With may_skip, devices of the order may stay without a stage (down to the job's least
  // number of stages, up to its most); without, each gets one. Empty when memory, links or pins allow none,
  // or when the plan is not wanted any more.
  std::vector<Result> Partition(std::span<const int> order, bool may_skip, size_t limit);

  // Inner-loop steps so far: what searches charge to their budget.
  int64_t work() const { return work_; }

 private:
  // How deep a stage is taken to be when its memory is judged, before its neighbours are known.
  enum class Depth { kTextbook, kOne };

  struct Cell {
    double sum_s;
    int16_t from_device;  // index in the order, -1: none
    int16_t from_grid;
  };

  void Sweep(bool may_skip, std::vector<Result>& results);
  bool Solve(double cap_s, bool may_skip, Result& result);
  void Arrive(double cap_s, bool may_skip, int begin);
  void Extend(double cap_s, bool may_skip, int device, int end);
  double CrossingSeconds(int grid, int src, int dst, double cap_s) const;
  int64_t NeededBytes(int begin, int end, int device) const;
  void FillMemoryTables();
  void AddLargestBlocks();
  void AddDifferences(const ChainValue& value, int begin, int64_t sign);
  size_t Pair(int begin, int end) const { return static_cast<size_t>(begin) * grid_.size() + end; }
  size_t Index(int layer, int grid, int device) const {
    return (static_cast<size_t>(layer) * grid_.size() + grid) * order_.size() + device;
  }
  Cell& At(int layer, int grid, int device) { return cells_[Index(layer, grid, device)]; }
  Cell& Arrival(int layer, int grid, int device) { return arrivals_[Index(layer, grid, device)]; }
  void Read(int layer, int device, double cap_s, Result& result);

  const Problem& problem_;
  std::vector<int> grid_;  // positions; 0 first, positions() last
  double min_bottleneck_s_;
  // By pair of grid points, as Evaluator would count them: bytes that do not depend on the depth, and bytes of one micro-batch in flight.
  std::vector<int64_t> fixed_bytes_, stash_bytes_;
  std::vector<int64_t> static_bytes_;           // the part of fixed_bytes_ that only grows with the segment
  std::vector<int64_t> fixed_row_, stash_row_;  // differences over `end` of the row that is being filled
  std::vector<int> grid_after_;                 // by position: first grid index behind it
  std::vector<int> order_;
  bool constrained_ = false;               // the number of stages has limits that skipping may miss
  int layers_ = 1;                         // when constrained: one for each number of stages so far
  std::vector<std::vector<double>> time_;  // by index in the order: compute seconds of positions before each grid point
  std::vector<Cell> cells_;                // least sums with which a device's stage ends at a grid point
  std::vector<Cell> arrivals_;             // and with which it may begin there
  // By kind of link: of each device of the order, the kinds there are; while arrivals are found, the best device that ends at the point,
  // for each layer, some device that does, and the crossings from kind to kind (-1: not asked yet).
  std::vector<int> kind_in_order_, kinds_, best_before_;
  std::vector<Cell> best_of_kind_;
  std::vector<double> crossing_s_;
  std::vector<char> ended_;  // by device: whether its stage can end at the grid point at hand
  Depth depth_ = Depth::kTextbook;
  bool memory_refused_ = false;
  int64_t work_ = 0;
};

}  // namespace fusionllm::scheduler
