#include "lib/scheduler/local_search.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/scheduler/device_choice.h"
#include "lib/scheduler/neighbour_orders.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kRebalanceBelow = 24;   // devices: re-cut after each change of the order
constexpr size_t kSettleBelow = 10;      // devices: and let the cuts settle before judging
constexpr size_t kSplitFirstBelow = 13;  // devices there are: one more is soon tried everywhere
constexpr double kNearBest = 1.25;       // of the best step time: what is worth settling
constexpr int kSplits = 12;              // positions tried in a stage for a new device

}  // namespace

bool LocalSearch::TryImprove(Candidate& current, const Assignment& assignment) {
  const Evaluation evaluation = evaluator_.Evaluate(assignment, effort_, current.evaluation.cost_s());
  if (!Better(evaluation, assignment.devices.size(), current.evaluation, current.assignment.devices.size())) return false;
  current = {assignment, evaluation};
  return true;
}

// Moves single cuts, far and near, until none helps.
bool LocalSearch::ShiftCuts(Candidate& current) {
  bool improved = false;
  for (bool again = true; again && !done_();) {
    again = false;
    for (size_t s = 1; s < current.assignment.begins.size(); ++s) {
      for (int shift : {1, -1, 2, -2, 3, -3, 5, -5, 8, -8, 13, -13, 30, -30}) {
        Assignment moved = current.assignment;
        moved.begins[s] += shift;
        const int low = s == 1 ? problem_.first_cut() : moved.begins[s - 1] + 1;
        const int high = s + 1 < moved.begins.size() ? moved.begins[s + 1] - 1 : problem_.positions() - 1;
        if (moved.begins[s] < low || moved.begins[s] > high) continue;
        if (TryImprove(current, moved)) again = improved = true;
        if (done_()) return improved;
        // The cuts behind it along with it, as far as they have room.
        Assignment along = current.assignment;
        bool fits = true;
        for (size_t t = s; t < along.begins.size(); ++t) along.begins[t] += shift;
        for (size_t t = s; t < along.begins.size(); ++t) {
          const int least = t == 1 ? problem_.first_cut() : along.begins[t - 1] + 1;
          fits = fits && along.begins[t] >= least && along.begins[t] < problem_.positions();
        }
        if (fits && s + 1 < along.begins.size() && TryImprove(current, along)) again = improved = true;
      }
    }
  }
  return improved;
}

// A changed order is judged after its own cuts have settled, if it starts anywhere near.
bool LocalSearch::TrySettled(Candidate& current, const Assignment& assignment) {
  Candidate other{assignment, evaluator_.Evaluate(assignment, effort_, kNearBest * current.evaluation.cost_s())};
  if (!other.evaluation.feasible() || other.evaluation.cost_s() > kNearBest * current.evaluation.cost_s()) return false;
  if (assignment.devices.size() <= kSettleBelow) ShiftCuts(other);
  if (!Better(other.evaluation, other.assignment.devices.size(), current.evaluation, current.assignment.devices.size())) return false;
  current = std::move(other);
  return true;
}

bool LocalSearch::ChangeDevices(Candidate& current) {
  const std::vector<int> from = current.assignment.devices;
  if (from.size() > kMaxSearchedDevices) return false;
  for (const std::vector<int>& devices : NeighbourOrders(from, DeviceChoice(problem_, from), problem_.AllowsStages(from.size() - 1),
                                                         problem_.AllowsStages(from.size() + 1))) {
    if (done_()) return false;
    if (devices.size() <= kRebalanceBelow) {
      for (const ChainSearch::Result& result : chain_().Partition(devices, false, 4)) {
        if (TrySettled(current, result.assignment)) return true;
      }
    }
    if (devices.size() == from.size() && TryImprove(current, {current.assignment.begins, devices})) return true;
  }
  return SplitStage(current);
}

// Gives part of a stage to an unused device, before or after it.
bool LocalSearch::SplitStage(Candidate& current) {
  const Assignment from = current.assignment;
  if (!problem_.AllowsStages(from.devices.size() + 1)) return false;
  for (int device : DeviceChoice(problem_, from.devices)) {
    if (std::find(from.devices.begin(), from.devices.end(), device) != from.devices.end()) continue;
    for (size_t s = 0; s < from.devices.size(); ++s) {
      const int begin = s == 0 ? problem_.first_cut() : from.begins[s] + 1;
      const int end = s + 1 < from.begins.size() ? from.begins[s + 1] : problem_.positions();
      const int stride = 1 + (end - begin) / kSplits;
      for (int cut = begin; cut < end; cut += stride) {
        for (size_t side : {s, s + 1}) {
          if (done_()) return false;
          Assignment split = from;
          split.begins.insert(split.begins.begin() + s + 1, cut);
          split.devices.insert(split.devices.begin() + side, device);
          if (TryImprove(current, split)) return true;
        }
      }
    }
  }
  return false;
}

void LocalSearch::HillClimb(Candidate& current, Effort effort) {
  effort_ = effort;
  // Of few devices one more is soon tried everywhere; other orders, each with its own cuts, may take all there is to spend.
  do {
    ShiftCuts(current);
  } while (!done_() && ((problem_.usable().size() < kSplitFirstBelow && SplitStage(current)) || ChangeDevices(current)));
}

}  // namespace fusionllm::scheduler
