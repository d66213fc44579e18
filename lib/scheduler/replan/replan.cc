#include "lib/scheduler/replan/replan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/reorder.h"
#include "lib/scheduler/replan/repair.h"
#include "lib/scheduler/stage_annealing.h"
#include "lib/scheduler/warm_start.h"

namespace fusionllm::scheduler::replan {
namespace {

constexpr absl::string_view kPlannerName = "op-fence";
constexpr size_t kClimbs = 3;

absl::Status CheckOptions(const RunningPlan& running, const ReplanOptions& options) {
  if (running.empty()) return absl::InvalidArgumentError("running plan: it has no stages");
  if (options.steps_left < 0) return absl::InvalidArgumentError(absl::StrCat("steps_left: ", options.steps_left, " is negative"));
  const std::pair<const char*, double> numbers[] = {{"running_step_s", options.running_step_s},
                                                    {"fixed_s", options.fixed_s},
                                                    {"min_improvement", options.min_improvement},
                                                    {"restore.latency_s", options.restore.latency_s}};
  for (const auto& [name, number] : numbers) {
    if (!std::isfinite(number) || number < 0)
      return absl::InvalidArgumentError(absl::StrFormat("%s: %g is not a number of at least 0", name, number));
    if (number > kMaxReplanSeconds)
      return absl::InvalidArgumentError(absl::StrFormat("%s: %g is more than %g", name, number, kMaxReplanSeconds));
  }
  for (const auto& [name, number] : {std::pair{"bias", options.bias}, std::pair{"restore.bytes_per_s", options.restore.bytes_per_s}}) {
    if (!std::isfinite(number) || number <= 0)
      return absl::InvalidArgumentError(absl::StrFormat("%s: %g is not a number above 0", name, number));
  }
  return absl::OkStatus();
}

std::vector<std::string> MissingDevices(const PlanRequest& now, const RunningPlan& running) {
  std::vector<std::string> missing;
  for (const NamedStage& stage : running) {
    const auto same = [&](const Device& device) { return device.name == stage.device; };
    if (std::none_of(now.devices.begin(), now.devices.end(), same)) missing.push_back(stage.device);
  }
  return missing;
}

class Replanner {
 public:
  Replanner(const Problem& problem, const RunningPlan& running, const ReplanOptions& options)
      : problem_(problem), running_(running), options_(options), evaluator_(problem), migrations_(problem, running, options.restore) {}

  absl::StatusOr<ReplanOutcome> Run(const std::vector<std::string>& missing) {
    std::optional<Assignment> present = AssignmentOf(problem_, running_);
    if (!present.has_value()) {
      return absl::InvalidArgumentError("running plan: its stages are no consecutive runs of this job's ops, or leave some of them out");
    }
    JudgePresent(*present, missing);
    if (options_.figures_only) return ReplanOutcome(Figures());
    if (stays_.has_value()) {
      starts_.push_back(*stays_);
    } else {
      for (const Assignment& filled : ReassignStages(problem_, *present)) AddStart(filled);
    }
    FUSIONLLM_RETURN_IF_ERROR(AddPlansOfOthers());
    if (problem_.Stopped()) return absl::CancelledError("planning was stopped");
    if (starts_.empty()) return ReplanOutcome(ExplainInfeasible(problem_, evaluator_));
    std::stable_sort(starts_.begin(), starts_.end(),
                     [](const ScoredAssignment& a, const ScoredAssignment& b) { return a.total_s < b.total_s; });
    if (starts_.size() > kClimbs) starts_.resize(kClimbs);
    const TotalSeconds total = [this](const Assignment& a, const Evaluation& e) { return Total(a, e); };
    std::vector<ScoredAssignment> finalists = starts_;
    for (const ScoredAssignment& start : starts_) {
      finalists.push_back(
          HillClimb(problem_, evaluator_, start, total, std::max<int64_t>(1, options_.evaluations / static_cast<int64_t>(starts_.size()))));
    }
    if (problem_.Stopped()) return absl::CancelledError("planning was stopped");
    // The quick evaluation fixes the depth of the pipeline by a formula; the last word has the search over depths.
    for (ScoredAssignment& finalist : finalists) {
      finalist.evaluation = evaluator_.Evaluate(finalist.assignment, Effort::kFull);
      finalist.total_s = Total(finalist.assignment, finalist.evaluation);
    }
    const ScoredAssignment& best = *std::min_element(
        finalists.begin(), finalists.end(), [](const ScoredAssignment& x, const ScoredAssignment& y) { return x.total_s < y.total_s; });
    return ReplanOutcome(Decide(best));
  }

 private:
  // Seconds that are left of the training when it goes on with this, the move included.
  double Total(const Assignment& assignment, const Evaluation& evaluation) const {
    const double steps_s = static_cast<double>(options_.steps_left) * options_.bias * evaluation.cost_s();
    // With a measured step, the same stages are another plan too: their codecs and depths would be chosen again.
    if (stays_.has_value() && assignment == stays_->assignment && options_.running_step_s == 0) return steps_s;
    return steps_s + options_.fixed_s + migrations_.TransferSeconds(assignment);
  }

  void JudgePresent(const Assignment& present, const std::vector<std::string>& missing) {
    if (!missing.empty()) {
      why_not_ = absl::StrCat(absl::StrJoin(missing, ", "), missing.size() == 1 ? " is" : " are", " not there any more");
      return;
    }
    const auto barred = std::find(present.devices.begin(), present.devices.end(), -1);
    if (barred != present.devices.end()) {
      why_not_ = absl::StrCat(running_[barred - present.devices.begin()].device, " may not run a stage any more");
      return;
    }
    const int stages = static_cast<int>(present.devices.size());
    if (stages < problem_.min_stages() || stages > problem_.max_stages()) {
      why_not_ = absl::StrFormat("the job now asks for %d to %d stages", problem_.min_stages(), problem_.max_stages());
      return;
    }
    const Evaluation evaluation = evaluator_.Evaluate(present, Effort::kFull);
    if (!evaluation.feasible()) {
      why_not_ = PlanErrorFor(problem_, present, evaluation).message;
      return;
    }
    stays_ = ScoredAssignment{present, evaluation, 0};
    stays_->total_s = Total(present, evaluation);
  }

  std::variant<ReplanResult, PlanError> Figures() {
    if (!stays_.has_value()) return PlanError{.reason = plan_errors::kRunningPlanInfeasible, .message = why_not_};
    const double step_s = options_.bias * stays_->evaluation.step_s;
    return ReplanResult{.reason = absl::StrFormat("%.3g s a step; no other plan was looked for", step_s),
                        .running_step_s = step_s,
                        .plan = CompletePlan(problem_, evaluator_, stays_->assignment, kPlannerName)};
  }

  void AddStart(const Assignment& assignment) {
    const Evaluation evaluation = evaluator_.Evaluate(assignment, Effort::kQuick);
    if (evaluation.feasible()) starts_.push_back({assignment, evaluation, Total(assignment, evaluation)});
  }

  void AddStagesOf(const PlanOutcome& outcome) {
    const auto* plan = std::get_if<PlannedPipeline>(&outcome);
    if (plan == nullptr) return;
    if (const std::optional<Assignment> assignment = AssignmentOf(problem_, StagesOf(*plan))) AddStart(*assignment);
  }

  absl::Status AddPlansOfOthers() {
    const StopFunction stop = [this] { return problem_.Stopped(); };
    for (const WarmStartMoves moves : {WarmStartMoves::kFew, WarmStartMoves::kAny}) {
      if (moves == WarmStartMoves::kAny && !StageAnnealing::Suits(problem_)) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const PlanOutcome near, PlanFromWarmStart(problem_.request(), running_, stop, moves));
      AddStagesOf(near);
    }
    if (!options_.from_scratch && !starts_.empty()) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const PlanOutcome fresh, MakePlan(kPlannerName, problem_.request(), stop));
    AddStagesOf(fresh);
    return absl::OkStatus();
  }

  ReplanResult Decide(const ScoredAssignment& best) {
    ReplanResult answer;
    const double step_s = options_.bias * best.evaluation.step_s;
    if (!stays_.has_value()) {
      answer.decision = ReplanResult::Decision::kMustMove;
      Take(best, answer);
      answer.reason = absl::StrFormat("%s: %s, %.3g s a step", why_not_, Moves(answer.migration), step_s);
      return answer;
    }
    const double present_step_s = options_.running_step_s > 0 ? options_.running_step_s : options_.bias * stays_->evaluation.step_s;
    const double stretch = stays_->evaluation.cost_s() / stays_->evaluation.step_s;  // by the loss of its codecs
    const double present_cost_s = present_step_s * stretch;
    const double stay_s = static_cast<double>(options_.steps_left) * present_cost_s;
    answer.running_step_s = present_step_s;
    const double gain_s = stay_s - best.total_s;
    const double share = present_cost_s > 0 ? 1 - options_.bias * best.evaluation.cost_s() / present_cost_s : 0;
    const bool same = best.assignment == stays_->assignment && options_.running_step_s == 0;
    if (!same && gain_s > 0 && share >= options_.min_improvement) {
      answer.decision = ReplanResult::Decision::kMove;
      answer.gain_s = gain_s;
      Take(best, answer);
      answer.reason =
          absl::StrFormat("%.3g s a step instead of %.3g s%s: %s, which costs %.3g s and gains %.3g s over the %s left", step_s,
                          present_step_s, OfLoss(best, step_s > present_step_s ? "but" : "and", present_cost_s), Moves(answer.migration),
                          options_.fixed_s + answer.migration.transfer_s, gain_s, base::Pluralize(options_.steps_left, "step"));
      return answer;
    }
    answer.plan = CompletePlan(problem_, evaluator_, stays_->assignment, kPlannerName);
    answer.reason = absl::StrFormat("staying at %.3g s a step: %s", present_step_s, WhyStay(same, share, step_s));
    return answer;
  }

  // What is gained may be steps, not their time: plans whose codecs lose less need fewer of them.
  std::string OfLoss(const ScoredAssignment& best, absl::string_view conjunction, double present_cost_s) const {
    const double loss = best.evaluation.loss_cost, present_loss = stays_->evaluation.loss_cost;
    if (loss == present_loss) return "";
    return absl::StrFormat(
        ", %s to an equal loss %.3g s instead of %.3g s, as its codecs are expected to raise the loss by %.2g instead of %.2g", conjunction,
        options_.bias * best.evaluation.cost_s(), present_cost_s, loss, present_loss);
  }

  std::string WhyStay(bool same, double share, double step_s) const {
    if (same || share <= 0) return "no other plan that was found is worth its move";
    if (share < options_.min_improvement) {
      return absl::StrFormat("the best that was found gains %.1f%% of a step to an equal loss, less than the %.0f%% that a move must gain",
                             100 * share, 100 * options_.min_improvement);
    }
    return absl::StrFormat("%.3g s a step is to be had, but %s %s not earn what the move costs", step_s,
                           base::Pluralize(options_.steps_left, "step"), options_.steps_left == 1 ? "does" : "do");
  }

  void Take(const ScoredAssignment& best, ReplanResult& answer) {
    answer.plan = CompletePlan(problem_, evaluator_, best.assignment, kPlannerName);
    answer.migration = migrations_.MigrationTo(best.assignment);
  }

  static std::string Moves(const Migration& migration) {
    if (migration.moved.empty()) return "no op changes its device, codecs and depths are chosen again";
    const MovedOp &first = migration.moved.front(), &last = migration.moved.back();
    const std::string names = migration.moved.size() == 1 ? first.op : absl::StrCat(first.op, " .. ", last.op);
    return absl::StrFormat("%d op%s (%s) move with %.3g MB in %.3g s", migration.moved.size(), migration.moved.size() == 1 ? "" : "s",
                           names, 1e-6 * static_cast<double>(migration.bytes), migration.transfer_s);
  }

  const Problem& problem_;
  const RunningPlan& running_;
  const ReplanOptions& options_;
  Evaluator evaluator_;
  MigrationModel migrations_;
  std::string why_not_;
  std::optional<ScoredAssignment> stays_;  // the running plan, if it can go on
  std::vector<ScoredAssignment> starts_;
};

}  // namespace

absl::StatusOr<ReplanOutcome> Replan(const PlanRequest& now, const RunningPlan& running, const ReplanOptions& options, StopFunction stop) {
  FUSIONLLM_RETURN_IF_ERROR(CheckOptions(running, options));
  const std::vector<std::string> missing = MissingDevices(now, running);
  PlanRequest request = now;
  if (auto order = OrderOfStages(now, running); order.has_value() && now.order.empty()) request.order = *std::move(order);
  if (options.figures_only && request.max_executors > 0) {
    request.max_executors = std::max(request.max_executors, static_cast<int>(running.size()));
  }
  if (!missing.empty()) {
    // What was held back counts as an executor now: the job may go on with as many as it had.
    for (Device& device : request.devices) device.spare = false;
    if (request.max_executors > 0) request.max_executors = std::max(request.max_executors, static_cast<int>(running.size()));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(auto created, Problem::Create(request, std::move(stop)));
  if (auto* refusal = std::get_if<PlanError>(&created)) return ReplanOutcome(std::move(*refusal));
  return Replanner(*std::get<std::unique_ptr<Problem>>(created), running, options).Run(missing);
}

}  // namespace fusionllm::scheduler::replan
