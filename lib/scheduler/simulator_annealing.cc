#include "lib/scheduler/simulator_annealing.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fusionllm::scheduler {
namespace {

// Temperatures as shares of the cost at the start.
constexpr double kSimulatedHottest = 0.02;
constexpr double kSimulatedColdest = 3e-4;
constexpr int kSimulatedSteps[] = {1, 1, 1, 2, 2, 3, 5, 8};
constexpr int64_t kMovesOfASimulation = 8;  // that are proposed at most: others cost no work

}  // namespace

int SimulatorAnnealing::End(size_t stage) const {
  return stage + 1 < proposed_.begins.size() ? proposed_.begins[stage + 1] : problem_.positions();
}

bool SimulatorAnnealing::CutsInOrder() const {
  for (size_t s = 1; s < proposed_.begins.size(); ++s) {
    const int least = s == 1 ? std::max(1, problem_.first_cut()) : proposed_.begins[s - 1] + 1;
    if (proposed_.begins[s] < least || proposed_.begins[s] >= problem_.positions()) return false;
  }
  return true;
}

// One cut, or all from there on or up to there, by the same number of ops.
bool SimulatorAnnealing::ShiftCuts(grid::Rng& rng) {
  const int count = static_cast<int>(proposed_.begins.size());
  if (count < 2) return false;
  const int first = 1 + rng.Below(count - 1);
  const int last = rng.Below(3) == 0 ? first + rng.Below(count - first) : first;
  const int step = kSimulatedSteps[rng.Below(std::size(kSimulatedSteps))], shift = rng.Below(2) == 0 ? step : -step;
  for (int s = first; s <= last; ++s) proposed_.begins[s] += shift;
  return CutsInOrder();
}

bool SimulatorAnnealing::ReplaceDevice(grid::Rng& rng) {
  if (unused_.empty()) return false;
  proposed_.devices[rng.Below(static_cast<int>(proposed_.devices.size()))] = unused_[rng.Below(static_cast<int>(unused_.size()))];
  return true;
}

// Two devices exchanged or one put elsewhere, with the ops they have or without; at times cuts shift along: where memory is short, an order
// may fit with other cuts only.
bool SimulatorAnnealing::Reorder(grid::Rng& rng) {
  const int count = static_cast<int>(proposed_.devices.size());
  if (count < 2) return false;
  const int a = rng.Below(count), b = rng.Below(count);
  if (a == b) return false;
  const bool exchange = rng.Below(2) == 0, with_ops = rng.Below(2) == 0;
  std::vector<int> lengths;
  for (int s = 0; s < count; ++s) lengths.push_back(End(s) - proposed_.begins[s]);
  const auto reorder = [&](std::vector<int>& items) {
    if (exchange) {
      std::swap(items[a], items[b]);
    } else if (a < b) {
      std::rotate(items.begin() + a, items.begin() + a + 1, items.begin() + b + 1);
    } else {
      std::rotate(items.begin() + b, items.begin() + a, items.begin() + a + 1);
    }
  };
  reorder(proposed_.devices);
  if (with_ops) reorder(lengths);
  for (int s = 1; s < count; ++s) proposed_.begins[s] = proposed_.begins[s - 1] + lengths[s - 1];
  return rng.Below(3) == 0 ? ShiftCuts(rng) : CutsInOrder();
}

// Gives part of a stage to one more device, before or after it.
bool SimulatorAnnealing::AddStage(grid::Rng& rng) {
  const int count = static_cast<int>(proposed_.devices.size());
  if (unused_.empty() || count >= problem_.max_stages()) return false;
  const int stage = rng.Below(count), length = End(stage) - proposed_.begins[stage];
  if (length < 2) return false;
  const int cut = proposed_.begins[stage] + 1 + rng.Below(length - 1);
  proposed_.begins.insert(proposed_.begins.begin() + stage + 1, cut);
  proposed_.devices.insert(proposed_.devices.begin() + stage + rng.Below(2), unused_[rng.Below(static_cast<int>(unused_.size()))]);
  return CutsInOrder();
}

// Its ops go to the stage before it or after it, or partly to both.
bool SimulatorAnnealing::RemoveStage(grid::Rng& rng) {
  const int count = static_cast<int>(proposed_.devices.size());
  if (count < 2 || count <= problem_.min_stages()) return false;
  const int stage = rng.Below(count), begin = proposed_.begins[stage], end = End(stage);
  proposed_.devices.erase(proposed_.devices.begin() + stage);
  proposed_.begins.erase(proposed_.begins.begin() + stage);
  if (stage == 0) {
    proposed_.begins[0] = begin;
  } else if (stage + 1 < count) {
    const int kind = rng.Below(3);
    proposed_.begins[stage] = kind == 0 ? begin : kind == 1 ? end : begin + rng.Below(end - begin + 1);
  }
  return CutsInOrder();
}

bool SimulatorAnnealing::Propose(const Assignment& from, grid::Rng& rng) {
  proposed_ = from;
  const int kind = rng.Below(20);
  if (kind < 9) return ShiftCuts(rng);
  if (kind < 12) return ReplaceDevice(rng);
  if (kind < 15) return Reorder(rng);
  return kind < 18 ? AddStage(rng) : RemoveStage(rng);
}

Candidate SimulatorAnnealing::Run(const Candidate& start, Effort effort, int64_t max_work, grid::Rng& rng) {
  Candidate best = start, current = start;
  const double hottest = kSimulatedHottest * start.evaluation.cost_s(), cooling = std::log(kSimulatedColdest / kSimulatedHottest);
  const auto find_unused = [&] {
    unused_.clear();
    for (const int device : problem_.usable()) {
      const std::vector<int>& used = current.assignment.devices;
      if (std::find(used.begin(), used.end(), device) == used.end()) unused_.push_back(device);
    }
  };
  find_unused();
  const int64_t begin = evaluator_.work(), max_moves = max_work * kMovesOfASimulation;
  for (int64_t move = 0; move < max_moves && !problem_.Stopped(); ++move) {
    const double done = std::max(static_cast<double>(evaluator_.work() - begin) / static_cast<double>(max_work),
                                 static_cast<double>(move) / static_cast<double>(max_moves));
    if (done >= 1) break;
    const double temperature = hottest * std::exp(cooling * done);
    const double limit = current.evaluation.cost_s() - temperature * std::log(1 - rng.Uniform());
    if (!Propose(current.assignment, rng)) continue;
    const Evaluation evaluation = evaluator_.Evaluate(proposed_, effort, limit);
    if (!evaluation.feasible() || evaluation.cost_s() > limit) continue;
    current = {proposed_, evaluation};
    find_unused();
    if (Better(evaluation, proposed_.devices.size(), best.evaluation, best.assignment.devices.size())) best = current;
  }
  return best;
}

}  // namespace fusionllm::scheduler
