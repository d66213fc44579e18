// First plans for many devices: for a cap on the time of a stage, devices are filled with ops up to the cap, one after another, the fastest
// of a site first and the nearest worthwhile site next. Sweeping the cap finds how many stages are worth their crossings; who is too slow
// for that stays out.
//
// Estimates are ClosedForm's. Cost of a plan: its stages x log(ops), and for each change of kind (DirectedLinks) the neighbours of a kind.
// Deterministic. One thread; borrows the Problem.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/closed_form.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

struct EstimatedPlan {
  Assignment assignment;
  double estimate_s = 0;
};

class GreedyPacking {
 public:
  explicit GreedyPacking(const Problem& problem);

  // Plans with a permitted number of stages, no two alike, at most `limit`: of those whose estimates are near the best one for each number
  // of stages, best estimate first, then the others. Stops early when work() passes `max_work`, or when the plan is not wanted any more.
  std::vector<EstimatedPlan> Plans(size_t limit, int64_t max_work);

  // Cuts for devices in a given order, no worse than as many ops for each; those that nothing is left for go without a stage as far as the
  // job lets them.
  std::optional<EstimatedPlan> Recut(std::span<const int> devices);

  // Steps so far: what searches charge to their budget.
  int64_t work() const { return work_; }

 private:
  // Devices of a kind that may be used, fastest first.
  struct Group {
    std::vector<int> devices;
    std::vector<double> slowness;   // seconds of the whole model
    std::vector<double> speed_sum;  // of the first i devices, models per second
    std::vector<int> near;          // groups to go on with, nearest first
  };
  struct Fill {
    int group = 0;  // to begin with
    double cap_s = 0;
    double slowest = std::numeric_limits<double>::infinity();  // devices with more seconds of the whole model stay out
    // By which the depth of the pipeline, and so memory, is judged: a stage has as many micro-batches in flight as stages follow, itself
    // counted, up to so many.
    int expected_stages = 1;
    int deepest = 1;
    double min_share = 0.5;  // of what a device could do, that a cut in a better place may leave it
  };
  struct Found {
    EstimatedPlan plan;
    Fill fill;
  };

  void MakeGroups();
  void FindNeighbours();
  void NeighboursByRule();
  double Distance(int from_device, int to_device) const;
  std::vector<int> Starts() const;
  std::vector<double> Thresholds() const;

  bool Run(const Fill& fill, Assignment& assignment);
  int NextDevice(const Fill& fill, int device, int begin);
  int NextGroup(const Fill& fill, int from_device, int position);
  double CostOfGroup(const Fill& fill, int group, int from_device, int position);
  int Unused(const Fill& fill, int group);
  bool ForcedStage(const Fill& fill, int stage, int begin, int device, int& end);
  int Depth(const Fill& fill, int stage) const;
  bool FitsAtDepth(const Assignment& assignment) const;

  bool Place(std::span<const int> devices, const Fill& fill, bool all, Assignment& assignment);
  void ConsiderEqualParts(std::span<const int> devices, std::optional<EstimatedPlan>& best);
  void RecutAtDepth(std::span<const int> devices, int deepest, std::optional<EstimatedPlan>& best);
  std::optional<EstimatedPlan> Spread(int group);
  double Try(const Fill& fill);
  double Keep(Assignment assignment, const Fill& fill);
  void Sweep(Fill fill, double from_s, double to_s, double ratio);
  void SortFound(size_t limit);

  const Problem& problem_;
  ClosedForm form_;
  double min_bottleneck_s_;
  int typical_position_ = 0;  // a cut with the median number of bytes alive
  std::vector<Group> groups_;
  std::vector<int> by_speed_;        // groups, those of the highest speed together first
  std::vector<int> group_of_;        // by device, -1: may not be used
  std::vector<double> slowness_of_;  // by device
  std::vector<char> pinned_;         // by device: ops are pinned to it, so it cannot be chosen freely
  // Of the fill that is being made: how many devices of each group are used up, in which fill that was; devices that pins used.
  int fill_ = 0;
  std::vector<int> taken_, taken_in_, pin_used_in_;
  size_t fastest_left_ = 0;  // index into by_speed_
  std::vector<Found> found_;
  int64_t work_ = 0;
  int64_t max_work_ = 0;
};

}  // namespace fusionllm::scheduler
