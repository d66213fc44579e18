#include "lib/scheduler/replan/repair.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler::replan {
namespace {

constexpr double kMinImprovement = 1e-9;
constexpr int kSlowest = 4;             // stages whose neighbourhood is searched in a round
constexpr int kSplits = 8;              // positions tried in a stage that is shared
constexpr size_t kMaxUnusedTried = 16;  // devices without a stage that are tried in a round
constexpr int kShifts[] = {1, -1, 2, -2, 4, -4, 8, -8, 16, -16, 32, -32};

int EndOf(const Problem& problem, const Assignment& a, size_t stage) {
  return stage + 1 < a.begins.size() ? a.begins[stage + 1] : problem.positions();
}

bool Valid(const Problem& problem, const Assignment& a) {
  const int stages = static_cast<int>(a.devices.size());
  if (stages < problem.min_stages() || stages > problem.max_stages()) return false;
  for (size_t s = 1; s < a.begins.size(); ++s) {
    if (a.begins[s] <= a.begins[s - 1] || a.begins[s] < problem.first_cut()) return false;
  }
  return a.begins.back() < problem.positions();
}

// Fast ones first: with the sum of all ops as the measure.
std::vector<int> Unused(const Problem& problem, const Assignment& a) {
  std::vector<int> unused;
  for (int device : problem.usable()) {
    if (std::find(a.devices.begin(), a.devices.end(), device) == a.devices.end()) unused.push_back(device);
  }
  const auto seconds = [&](int device) {
    return problem.ForwardSeconds(0, problem.positions(), device) + problem.BackwardSeconds(0, problem.positions(), device);
  };
  std::stable_sort(unused.begin(), unused.end(), [&](int x, int y) { return seconds(x) < seconds(y); });
  if (unused.size() > kMaxUnusedTried) unused.resize(kMaxUnusedTried);
  return unused;
}

// Without stage `s`, whose positions before `cut` go to the stage before it and the others to the one behind.
Assignment Without(const Problem& problem, const Assignment& a, size_t s, int cut) {
  Assignment without = a;
  without.begins.erase(without.begins.begin() + static_cast<std::ptrdiff_t>(s));
  without.devices.erase(without.devices.begin() + static_cast<std::ptrdiff_t>(s));
  if (without.begins.empty()) return without;
  if (s < without.begins.size()) without.begins[s] = s == 0 ? 0 : cut;
  without.begins[0] = 0;
  return without;
}

// Cuts of stage `s` at which it may be shared out between its neighbours, both ends included.
std::vector<int> CutsIn(const Problem& problem, const Assignment& a, size_t s) {
  const int begin = a.begins[s], end = EndOf(problem, a, s);
  std::vector<int> cuts;
  for (int i = 0; i <= kSplits; ++i) {
    const int cut = begin + static_cast<int>(static_cast<int64_t>(end - begin) * i / kSplits);
    if (cuts.empty() || cuts.back() != cut) cuts.push_back(cut);
  }
  return cuts;
}

class LocalSearch {
 public:
  LocalSearch(const Problem& problem, Evaluator& evaluator, ScoredAssignment start, const TotalSeconds& total, int64_t evaluations)
      : problem_(problem), evaluator_(evaluator), best_(std::move(start)), total_(total), limit_(evaluator.evaluations() + evaluations) {}

  ScoredAssignment Run() {
    bool again = true;
    while (again && !Done()) {
      again = false;
      for (size_t s : StagesThatMatter()) {
        // Each improvement renumbers stages or changes which are slow: start over from there.
        if (Done() || Shift(s) || Replace(s) || Share(s) || GiveUp(s)) {
          again = true;
          break;
        }
      }
    }
    return std::move(best_);
  }

 private:
  bool Done() const { return evaluator_.evaluations() >= limit_ || problem_.Stopped(); }

  bool Try(const Assignment& candidate) {
    if (Done() || !Valid(problem_, candidate)) return false;
    const Evaluation evaluation = evaluator_.Evaluate(candidate, Effort::kQuick);
    if (!evaluation.feasible()) return false;
    const double total_s = total_(candidate, evaluation);
    if (total_s >= best_.total_s * (1 - kMinImprovement)) return false;
    best_ = {candidate, evaluation, total_s};
    return true;
  }

  // The slowest stages and their neighbours, slowest first, no repetition.
  std::vector<size_t> StagesThatMatter() const {
    const Assignment& a = best_.assignment;
    std::vector<size_t> order(a.devices.size());
    for (size_t s = 0; s < order.size(); ++s) order[s] = s;
    std::vector<double> seconds;
    for (size_t s : order) {
      const int end = EndOf(problem_, a, s);
      seconds.push_back(problem_.ForwardSeconds(a.begins[s], end, a.devices[s]) + problem_.BackwardSeconds(a.begins[s], end, a.devices[s]));
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return seconds[x] > seconds[y]; });
    std::vector<size_t> chosen;
    const auto add = [&](size_t s) {
      if (s < a.devices.size() && std::find(chosen.begin(), chosen.end(), s) == chosen.end()) chosen.push_back(s);
    };
    for (size_t i = 0; i < order.size() && i < kSlowest; ++i) {
      add(order[i]);
      if (order[i] > 0) add(order[i] - 1);
      add(order[i] + 1);
    }
    return chosen;
  }

  // The cuts at both ends of the stage, alone and with the cuts behind or before them.
  bool Shift(size_t s) {
    for (size_t cut : {s, s + 1}) {
      if (cut == 0 || cut >= best_.assignment.begins.size()) continue;
      for (int shift : kShifts) {
        Assignment alone = best_.assignment, behind = best_.assignment, before = best_.assignment;
        alone.begins[cut] += shift;
        for (size_t t = cut; t < behind.begins.size(); ++t) behind.begins[t] += shift;
        for (size_t t = 1; t <= cut; ++t) before.begins[t] += shift;
        if (Try(alone) || Try(behind) || Try(before)) return true;
      }
    }
    return false;
  }

  bool Replace(size_t s) {
    for (int device : Unused(problem_, best_.assignment)) {
      Assignment other = best_.assignment;
      other.devices[s] = device;
      if (Try(other)) return true;
    }
    for (size_t t = 0; t < best_.assignment.devices.size() && best_.assignment.devices.size() <= kMaxUnusedTried; ++t) {
      Assignment swapped = best_.assignment;
      std::swap(swapped.devices[s], swapped.devices[t]);
      if (t != s && Try(swapped)) return true;
    }
    return false;
  }

  bool Share(size_t s) {
    const std::vector<int> cuts = CutsIn(problem_, best_.assignment, s);
    for (int device : Unused(problem_, best_.assignment)) {
      for (size_t i = 1; i + 1 < cuts.size(); ++i) {
        for (size_t side : {s, s + 1}) {
          Assignment shared = best_.assignment;
          shared.begins.insert(shared.begins.begin() + static_cast<std::ptrdiff_t>(s) + 1, cuts[i]);
          shared.devices.insert(shared.devices.begin() + static_cast<std::ptrdiff_t>(side), device);
          if (Try(shared)) return true;
        }
      }
    }
    return false;
  }

  bool GiveUp(size_t s) {
    if (best_.assignment.devices.size() < 2) return false;
    for (int cut : CutsIn(problem_, best_.assignment, s)) {
      if (Try(Without(problem_, best_.assignment, s, cut))) return true;
    }
    return false;
  }

  const Problem& problem_;
  Evaluator& evaluator_;
  ScoredAssignment best_;
  const TotalSeconds& total_;
  const int64_t limit_;
};

}  // namespace

std::optional<Assignment> AssignmentOf(const Problem& problem, const RunningPlan& running) {
  const PlanRequest& request = problem.request();
  std::map<absl::string_view, int> stage_of_op, device_of_name;
  for (size_t s = 0; s < running.size(); ++s) {
    for (const std::string& op : running[s].ops) stage_of_op[op] = static_cast<int>(s);
  }
  for (int device : problem.usable()) device_of_name[request.devices[device].name] = device;
  Assignment assignment;
  int last = -1;
  for (int p = 0; p < problem.positions(); ++p) {
    const auto stage = stage_of_op.find(request.ops[problem.op_at(p)].name);
    if (stage == stage_of_op.end()) return std::nullopt;
    if (stage->second == last) continue;
    if (stage->second != last + 1) return std::nullopt;
    last = stage->second;
    const auto device = device_of_name.find(running[last].device);
    assignment.begins.push_back(p);
    assignment.devices.push_back(device == device_of_name.end() ? -1 : device->second);
  }
  if (last + 1 != static_cast<int>(running.size())) return std::nullopt;
  return assignment;
}

std::vector<Assignment> ReassignStages(const Problem& problem, const Assignment& assignment) {
  const auto gap = std::find(assignment.devices.begin(), assignment.devices.end(), -1);
  if (gap == assignment.devices.end()) return {assignment};
  const size_t s = gap - assignment.devices.begin();
  std::vector<Assignment> one_less;
  for (int device : Unused(problem, assignment)) {
    one_less.push_back(assignment);
    one_less.back().devices[s] = device;
  }
  if (assignment.devices.size() > 1) {
    // With several gaps the product of all cuts would be large: then both halves only.
    const bool single = std::count(assignment.devices.begin(), assignment.devices.end(), -1) == 1;
    const std::vector<int> cuts = CutsIn(problem, assignment, s);
    for (size_t i = 0; i < cuts.size(); ++i) {
      if (single || i == cuts.size() / 2) one_less.push_back(Without(problem, assignment, s, cuts[i]));
    }
  }
  constexpr size_t kMaxFilled = 64;
  std::vector<Assignment> filled;
  for (const Assignment& less : one_less) {
    for (Assignment& whole : ReassignStages(problem, less)) {
      if (filled.size() >= kMaxFilled) return filled;
      if (Valid(problem, whole)) filled.push_back(std::move(whole));
    }
  }
  return filled;
}

ScoredAssignment HillClimb(const Problem& problem, Evaluator& evaluator, ScoredAssignment start, const TotalSeconds& total,
                           int64_t evaluations) {
  return LocalSearch(problem, evaluator, std::move(start), total, evaluations).Run();
}

}  // namespace fusionllm::scheduler::replan
