#include "lib/scheduler/warm_start.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"
#include "lib/base/status_macros.h"
#include "lib/scheduler/greedy_packing.h"
#include "lib/scheduler/grid/rng.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/reorder.h"
#include "lib/scheduler/stage_annealing.h"

namespace fusionllm::scheduler {
namespace {

constexpr size_t kFewStages = 40;              // up to which
constexpr size_t kTries = 4;                   // so many stages lose their device, and so many devices without a stage are tried; beyond,
constexpr size_t kTriesOfMany = 2;             // so many
constexpr size_t kSimulated = 3;               // candidates that the simulator looks at
constexpr int64_t kMaxCuttingSteps = 400'000;  // of cutting, after which no further candidate is made
constexpr size_t kAnneals = 10;                // short ones, each judged by the simulator
constexpr int64_t kWorkOfAnAnneal = 25'000;

class WarmStartSearch {
 public:
  WarmStartSearch(const Problem& problem, Evaluator& evaluator, const std::vector<NamedStage>& previous, bool anneal)
      : problem_(problem), evaluator_(evaluator), fill_(problem), form_(problem), anneal_(anneal && StageAnnealing::Suits(problem)) {
    Recall(previous);
  }

  std::variant<Assignment, PlanError> Run() {
    const std::vector<int> present = Present();
    if (!present.empty()) {
      if (known_cuts_ && present.size() == devices_.size()) Add({.begins = begins_, .devices = devices_});
      AddRecut(present);
      if (present.size() < devices_.size()) AddRecut(Refilled());
      if (!anneal_) TryOthers(present);
    }
    std::optional<Candidate> best = Judge();
    if (!best && anneal_ && !present.empty()) {
      TryOthers(present);
      best = Judge();
    }
    if (!best) return PlanError{plan_errors::kNoWarmStartPlan, "no plan near the known one is feasible", {}};
    return anneal_ ? Annealed(*best) : best->assignment;
  }

 private:
  // One device more, one less, or another one.
  void TryOthers(const std::vector<int>& present) {
    const std::vector<int> base = candidates_.empty() ? present : Best().assignment.devices;
    for (const int device : Newcomers(base)) AddRecut(With(base, device));
    for (const size_t stage : Laggards(base)) {
      std::vector<int> without = base;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(stage));
      for (const int device : Newcomers(without)) {
        std::vector<int> exchanged = base;
        if (device == base[stage]) continue;
        exchanged[stage] = device;
        AddRecut(exchanged);
      }
      if (!without.empty()) AddRecut(without);
    }
  }

  void Recall(const std::vector<NamedStage>& previous) {
    std::map<absl::string_view, int> device_of, position_of;
    for (int device : problem_.usable()) device_of[problem_.request().devices[device].name] = device;
    for (int p = 0; p < problem_.positions(); ++p) position_of[problem_.request().ops[problem_.op_at(p)].name] = p;
    std::vector<char> taken(problem_.request().devices.size(), 0);
    for (const NamedStage& stage : previous) {
      const auto device = device_of.find(stage.device);
      const bool there = device != device_of.end() && !taken[device->second];
      devices_.push_back(there ? device->second : -1);
      if (there) taken[device->second] = 1;
      int begin = problem_.positions();
      for (const std::string& op : stage.ops) {
        const auto position = position_of.find(op);
        if (position != position_of.end()) begin = std::min(begin, position->second);
      }
      begins_.push_back(begin);
    }
    known_cuts_ = !begins_.empty() && begins_[0] == 0 && static_cast<int>(devices_.size()) >= problem_.min_stages() &&
                  static_cast<int>(devices_.size()) <= problem_.max_stages();
    for (size_t s = 1; s < begins_.size(); ++s) {
      known_cuts_ = known_cuts_ && begins_[s] > begins_[s - 1] && begins_[s] >= problem_.first_cut() && begins_[s] < problem_.positions();
    }
  }

  std::vector<int> Present() const {
    std::vector<int> present;
    std::copy_if(devices_.begin(), devices_.end(), std::back_inserter(present), [](int device) { return device >= 0; });
    return present;
  }

  // Who stood in for a lost device may come from anywhere: near the stage before it, or behind it for the first.
  std::vector<int> Refilled() const {
    std::vector<int> refilled = devices_;
    for (size_t s = 0; s < refilled.size(); ++s) {
      if (refilled[s] >= 0) continue;
      std::vector<int> known;
      for (int device : refilled) {
        if (device >= 0) known.push_back(device);
      }
      int beside = s > 0 ? refilled[s - 1] : -1;
      if (beside < 0) beside = known.front();
      const std::vector<int> candidates = Unused(known, beside);
      if (candidates.empty()) return known;
      refilled[s] = candidates.front();
    }
    return refilled;
  }

  static size_t Tries(const std::vector<int>& devices) { return devices.size() > kFewStages ? kTriesOfMany : kTries; }

  double Slowness(int device) const { return form_.StageSeconds(0, problem_.positions(), device); }

  // Devices without a stage, the best to follow `beside` first: what they take for an even share of the model and for the way there.
  std::vector<int> Unused(const std::vector<int>& devices, int beside) const {
    std::vector<char> used(problem_.request().devices.size(), 0);
    for (int device : devices) used[device] = 1;
    const int middle = std::clamp(problem_.positions() / 2, problem_.first_cut(), problem_.positions() - 1);
    const auto share = static_cast<double>(devices.size() + 1);
    std::vector<std::pair<double, int>> ranked;
    for (int device : problem_.usable()) {
      if (used[device] || !problem_.Connected(beside, device)) continue;
      const double crossing_s = form_.CrossingAt(middle, beside, device, Slowness(beside)).seconds();
      ranked.push_back({Slowness(device) / share + crossing_s, device});
    }
    const size_t count = std::min(Tries(devices), ranked.size());
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count), ranked.end());
    std::vector<int> unused;
    for (size_t i = 0; i < count; ++i) unused.push_back(ranked[i].second);
    return unused;
  }

  std::vector<int> Newcomers(const std::vector<int>& devices) const {
    return devices.empty() ? std::vector<int>{} : Unused(devices, devices[devices.size() / 2]);
  }

  // Taken in behind the device that it is nearest to.
  std::vector<int> With(const std::vector<int>& devices, int newcomer) const {
    const int middle = std::clamp(problem_.positions() / 2, problem_.first_cut(), problem_.positions() - 1);
    size_t after = 0;
    double min_s = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < devices.size(); ++s) {
      double seconds = form_.CrossingAt(middle, devices[s], newcomer, Slowness(newcomer)).seconds();
      if (s + 1 < devices.size()) seconds += form_.CrossingAt(middle, newcomer, devices[s + 1], Slowness(newcomer)).seconds();
      if (seconds >= min_s) continue;
      min_s = seconds;
      after = s;
    }
    std::vector<int> with = devices;
    with.insert(with.begin() + static_cast<std::ptrdiff_t>(after) + 1, newcomer);
    return with;
  }

  // Stages with the slowest devices.
  std::vector<size_t> Laggards(const std::vector<int>& devices) const {
    std::vector<std::pair<double, size_t>> ranked;
    for (size_t s = 0; s < devices.size(); ++s) ranked.push_back({-Slowness(devices[s]), s});
    const size_t count = std::min(Tries(devices), ranked.size());
    std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count), ranked.end());
    std::vector<size_t> laggards;
    for (size_t i = 0; i < count; ++i) laggards.push_back(ranked[i].second);
    return laggards;
  }

  void Add(Assignment assignment) {
    const double estimate_s = form_.StepSeconds(assignment);
    candidates_.push_back({std::move(assignment), estimate_s});
  }

  void AddRecut(const std::vector<int>& devices) {
    if (problem_.Stopped() || fill_.work() > kMaxCuttingSteps || static_cast<int>(devices.size()) < problem_.min_stages()) return;
    std::optional<EstimatedPlan> plan = fill_.Recut(devices);
    if (plan && static_cast<int>(plan->assignment.devices.size()) <= problem_.max_stages()) candidates_.push_back(*std::move(plan));
  }

  const EstimatedPlan& Best() const {
    return *std::min_element(candidates_.begin(), candidates_.end(),
                             [](const EstimatedPlan& a, const EstimatedPlan& b) { return a.estimate_s < b.estimate_s; });
  }

  std::optional<Candidate> Judge() {
    // The known stages, where they are the first candidate, are judged whatever their estimate.
    const auto first_estimated = candidates_.begin() + (candidates_.empty() ? 0 : 1);
    std::stable_sort(first_estimated, candidates_.end(),
                     [](const EstimatedPlan& a, const EstimatedPlan& b) { return a.estimate_s < b.estimate_s; });
    std::optional<Candidate> best;
    size_t judged = 0;
    for (const EstimatedPlan& candidate : candidates_) {
      if (problem_.Stopped() || (best && judged > kSimulated)) break;
      const double cutoff_s = best ? best->evaluation.cost_s() : std::numeric_limits<double>::infinity();
      const Evaluation other = evaluator_.Evaluate(candidate.assignment, Effort::kFull, cutoff_s);
      ++judged;
      if (!other.feasible()) continue;
      if (best && !Better(other, candidate.assignment.devices.size(), best->evaluation, best->assignment.devices.size())) continue;
      best = Candidate{candidate.assignment, other};
    }
    return best;
  }

  // What a few milliseconds of the search from scratch make of it.
  Assignment Annealed(const Candidate& best) {
    if (problem_.Stopped()) return best.assignment;
    StageAnnealing annealing(problem_, problem_.usable());
    grid::Rng rng(problem_.request().seed);
    Candidate current{best.assignment, evaluator_.Evaluate(best.assignment, Effort::kQuick)};
    for (size_t i = 0; i < kAnneals && !problem_.Stopped(); ++i) {
      const double share = StageAnnealing::kUsualShares[i % std::size(StageAnnealing::kUsualShares)];
      Assignment found = annealing.Run(current.assignment, share, kWorkOfAnAnneal, rng);
      if (found == current.assignment) continue;
      const Evaluation evaluation = evaluator_.Evaluate(found, Effort::kQuick, current.evaluation.cost_s());
      if (Better(evaluation, found.devices.size(), current.evaluation, current.assignment.devices.size()))
        current = {std::move(found), evaluation};
    }
    if (current.assignment == best.assignment) return best.assignment;
    const Evaluation full = evaluator_.Evaluate(current.assignment, Effort::kFull, best.evaluation.cost_s());
    const bool better = Better(full, current.assignment.devices.size(), best.evaluation, best.assignment.devices.size());
    return better ? current.assignment : best.assignment;
  }

  const Problem& problem_;
  Evaluator& evaluator_;
  GreedyPacking fill_;
  ClosedForm form_;
  const bool anneal_;
  std::vector<int> devices_;  // -1: not there any more
  std::vector<int> begins_;
  bool known_cuts_ = false;
  std::vector<EstimatedPlan> candidates_;
};

class WarmStartPlanner final : public Planner {
 public:
  WarmStartPlanner(const std::vector<NamedStage>& previous, WarmStartMoves moves) : previous_(previous), moves_(moves) {}
  absl::string_view name() const override { return "op-fence"; }

 protected:
  std::variant<Assignment, PlanError> Search(const Problem& problem, Evaluator& evaluator, bool*) const override {
    return WarmStartSearch(problem, evaluator, previous_, moves_ == WarmStartMoves::kAny).Run();
  }

 private:
  const std::vector<NamedStage>& previous_;
  const WarmStartMoves moves_;
};

}  // namespace

std::vector<NamedStage> StagesOf(const PlannedPipeline& plan) {
  std::vector<NamedStage> stages;
  for (const PlannedStage& stage : plan.stages) stages.push_back({stage.device_names[0], stage.op_names});
  return stages;
}

absl::StatusOr<PlanOutcome> PlanFromWarmStart(const PlanRequest& request, const std::vector<NamedStage>& previous, const StopFunction& stop,
                                              WarmStartMoves moves) {
  if (auto order = OrderOfStages(request, previous); order.has_value() && request.order.empty()) {
    PlanRequest along = request;
    along.order = *std::move(order);
    return PlanFromWarmStart(along, previous, stop, moves);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, WarmStartPlanner(previous, moves).Plan(request, stop));
  if (std::holds_alternative<scheduler::PlannedPipeline>(outcome)) return outcome;
  return MakePlan("op-fence", request, stop);
}

}  // namespace fusionllm::scheduler
