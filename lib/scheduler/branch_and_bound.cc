#include "lib/scheduler/branch_and_bound.h"

#include <algorithm>

#include "lib/scheduler/infinity.h"

namespace fusionllm::scheduler {

// The stages fixed so far, and how long a step lasts at least with them. A run is a row of stages that wait for each other, see
// CompletionBound; only the last run can still grow.
struct BranchPrefix {
  struct Holding {
    double before_s, rounds;
  };
  double settled_s = 0;          // by runs that are closed
  std::vector<double> shared_s;  // by shared resource: how long the step keeps it busy
  double update_s = 0;           // of the run's first stage
  double way_s = 0;              // one micro-batch from the run's first stage to its last and back
  double alone_s = 0;            // the way to a stage and m micro-batches there
  double repeats_s = 0;          // what the busiest stage or shared link adds to the way through all of them
  std::vector<Holding> held;     // by stage of the run: the way to it, how often what is behind it is waited for

  // With so much for one micro-batch behind the run.
  double StepSeconds(double behind_s) const {
    double step_s = std::max(alone_s, way_s + behind_s + repeats_s);
    for (const Holding& stage : held) step_s = std::max(step_s, stage.before_s + stage.rounds * (way_s - stage.before_s + behind_s));
    return std::max(settled_s, update_s + step_s);
  }
};

namespace {

constexpr int64_t kWorkPerSimulation = 300;  // segments looked at
// What is faster by less is not faster: rounding.
constexpr double kBoundRounding = 1 - 1e-9;

struct Branch {
  double min_s;
  int device, end;  // of the stage; the device as an index into usable()
  BranchPrefix prefix;
};

Evaluation EvaluationOf(Evaluator& evaluator, const Assignment& assignment) {
  return assignment.devices.empty() ? Evaluation{} : evaluator.Evaluate(assignment, Effort::kFull);
}

}  // namespace

BranchAndBound::BranchAndBound(const Problem& problem, Evaluator& evaluator, const Assignment& known)
    : problem_(problem), evaluator_(evaluator), best_(known), best_evaluation_(EvaluationOf(evaluator, known)) {}

bool BranchAndBound::Run(double slack, int64_t simulations) {
  slack_ = slack;
  exhausted_ = problem_.usable().size() > kMaxUsableDevices;
  max_evaluations_ = evaluator_.evaluations() + simulations;
  bound_.emplace(problem_, best_.devices.empty() ? kInfinity : best_evaluation_.cost_s() / (1 + slack));
  bound_->LimitWork(simulations * kWorkPerSimulation);
  if (!exhausted_) Descend(0, BranchPrefix{});
  return !exhausted_;
}

void BranchAndBound::Consider(const Assignment& assignment) {
  // Nothing is proven with slack: a quick look spares most of the searches for the best depth.
  if (slack_ > 0 && !best_.devices.empty()) {
    const Evaluation quick = evaluator_.Evaluate(assignment, Effort::kQuick);
    if (!quick.feasible() || quick.cost_s() > best_evaluation_.cost_s()) return;
  }
  const Evaluation evaluation = evaluator_.Evaluate(assignment, Effort::kFull);
  if (!evaluation.feasible()) return;
  if (best_.devices.empty() || Better(evaluation, assignment.devices.size(), best_evaluation_, best_.devices.size())) {
    best_ = assignment;
    best_evaluation_ = evaluation;
  }
}

bool BranchAndBound::CanPrune(double min_s) const {
  return !best_.devices.empty() &&
         (min_s + problem_.request().step_overhead_s) * (1 + slack_) >= best_evaluation_.cost_s() * kBoundRounding;
}

// By the end of the stage that begins at `begin`: what it gets from the one before it.
std::vector<CompletionBound::Traffic> BranchAndBound::TrafficInto(int begin) const {
  std::vector<CompletionBound::Traffic> by_end(problem_.positions() + 1);
  if (begin == 0) return by_end;
  for (const ChainValue& value : problem_.values()) {
    if (value.producer < partial_.begins.back() || value.producer >= begin || value.last_consumer < begin) continue;
    by_end[*std::lower_bound(value.consumers.begin(), value.consumers.end(), begin) + 1].Add(value);
  }
  for (size_t end = begin + 1; end < by_end.size(); ++end) {
    by_end[end].lossy += by_end[end - 1].lossy;
    by_end[end].lossless += by_end[end - 1].lossless;
    by_end[end].gradient += by_end[end - 1].gradient;
  }
  return by_end;
}

// From the last stage to one on the device; false if no link is there.
bool BranchAndBound::Cross(const BranchPrefix& prefix, const CompletionBound::Traffic& traffic, int device, BranchPrefix& longer) const {
  const int from = partial_.devices.back();
  const CompletionBound::Crossing crossing = bound_->CrossingOf(traffic, from, device);
  if (!crossing.possible) return false;
  if (crossing.chained) {
    longer.way_s += crossing.both_s;
    longer.repeats_s = std::max(longer.repeats_s, (bound_->micro_batches() - 1) * crossing.slowest_s);
  } else {
    longer = BranchPrefix{.settled_s = prefix.StepSeconds(0), .shared_s = prefix.shared_s};
  }
  const PlanRequest& request = problem_.request();
  longer.shared_s.resize(request.resources.size());
  const auto use = [&](int src, int dst, double bytes) {
    problem_.links().ForEachResource(src, dst, problem_.link(src, dst), [&](int r) {
      longer.shared_s[r] += bound_->micro_batches() * bytes / request.resources[r].bytes_per_s;
      longer.settled_s = std::max(longer.settled_s, longer.shared_s[r]);
    });
  };
  if (traffic.lossy + traffic.lossless > 0) use(from, device, bound_->MinBytes(traffic.lossy, traffic.lossless));
  if (traffic.gradient > 0) use(device, from, bound_->MinBytes(traffic.gradient, 0));
  return true;
}

// The run as it is with one more stage; false if that cannot be.
bool BranchAndBound::Extend(const BranchPrefix& prefix, int begin, int end, int device, const CompletionBound::Traffic& traffic,
                            BranchPrefix& longer) const {
  const CompletionBound::Segment segment = bound_->SegmentOf(begin, end, device);
  if (!segment.fits) return false;
  longer = prefix;
  if (begin > 0 && !Cross(prefix, traffic, device, longer)) return false;
  if (longer.held.empty()) longer.update_s = problem_.UpdateSeconds(begin, end, device);
  longer.alone_s = std::max(longer.alone_s, longer.way_s + bound_->micro_batches() * segment.both_s());
  longer.held.push_back({longer.way_s, static_cast<double>(segment.rounds)});
  longer.way_s += segment.both_s();
  longer.repeats_s = std::max(longer.repeats_s, bound_->Repeats(segment));
  return true;
}

double BranchAndBound::MinSeconds(const BranchPrefix& prefix, int end, int device) {
  if (end == problem_.positions()) return prefix.StepSeconds(0);
  const CompletionBound::Completion rest = bound_->After(end, used_ | 1u << device, device);
  const bool chained = bound_->Chained(end);
  const double behind_s = chained ? prefix.update_s + prefix.way_s + rest.step_s : rest.step_s;
  return std::max(prefix.StepSeconds(chained ? rest.fill_s : 0), behind_s);
}

// Chooses device and end of the next stage, which begins at `begin`; the most promising first.
void BranchAndBound::Descend(int begin, const BranchPrefix& prefix) {
  const int n = problem_.positions(), chosen = static_cast<int>(partial_.devices.size());
  const std::vector<CompletionBound::Traffic> traffic = TrafficInto(begin);
  std::vector<Branch> branches;
  for (int d = 0; d < static_cast<int>(problem_.usable().size()); ++d) {
    if ((used_ >> d & 1) != 0 || bound_->IsSymmetric(d, used_)) continue;
    const int device = problem_.usable()[d];
    for (int end = begin == 0 ? problem_.first_cut() : begin + 1; end <= n; ++end) {
      if (end == n ? chosen + 1 < problem_.min_stages() : chosen + 1 >= problem_.max_stages()) continue;
      bound_->AddWork(1);
      const double both_s = problem_.ForwardSeconds(begin, end, device) + problem_.BackwardSeconds(begin, end, device);
      if (CanPrune(both_s * bound_->micro_batches())) break;  // longer ones only take longer
      Branch branch{.device = d, .end = end};
      if (!Extend(prefix, begin, end, device, traffic[end], branch.prefix)) continue;
      branch.min_s = MinSeconds(branch.prefix, end, d);
      if (branch.min_s < kInfinity && !CanPrune(branch.min_s)) branches.push_back(std::move(branch));
    }
  }
  std::stable_sort(branches.begin(), branches.end(), [](const Branch& a, const Branch& b) { return a.min_s < b.min_s; });
  for (const Branch& branch : branches) {
    if (bound_->BudgetExhausted() || evaluator_.evaluations() > max_evaluations_ || problem_.Stopped()) exhausted_ = true;
    if (exhausted_ || CanPrune(branch.min_s)) break;
    used_ |= 1u << branch.device;
    partial_.devices.push_back(problem_.usable()[branch.device]);
    partial_.begins.push_back(begin);
    if (branch.end == n) {
      Consider(partial_);
    } else {
      Descend(branch.end, branch.prefix);
    }
    partial_.devices.pop_back();
    partial_.begins.pop_back();
    used_ &= ~(1u << branch.device);
  }
}

}  // namespace fusionllm::scheduler
