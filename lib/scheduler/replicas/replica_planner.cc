#include "lib/scheduler/replicas/replica_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/scheduler/bounds.h"
#include "lib/scheduler/explain.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/replicas/replica_evaluator.h"
#include "lib/scheduler/replicas/replica_explain.h"
#include "lib/scheduler/replicas/replica_plan_errors.h"
#include "lib/scheduler/replicas/replica_search.h"

namespace fusionllm::scheduler::replicas {
namespace {

constexpr double kRounding = 1 - 1e-9;  // as LowerBoundSeconds
constexpr int kEveryNumberUpTo = 8;     // of pipelines or stages; beyond, steps of about a fifth

GridConstraints GridConstraintsOf(const PlanRequest& request, const Problem& problem, int replicas) {
  const int usable = static_cast<int>(problem.usable().size());
  GridConstraints constraints{.replicas = replicas, .stages = request.stages, .min_devices = request.min_executors};
  constraints.max_devices = request.max_executors > 0 ? std::min(usable, request.max_executors) : usable;
  constraints.max_stages = problem.positions() - problem.first_cut() + 1;
  if (constraints.max_devices < usable) constraints.max_devices_why = request.max_executors_why;
  if (!request.exclude_why.empty()) constraints.fewer_devices_why = absl::StrCat("; ", request.exclude_why);
  constraints.use_all_devices = request.use_all_devices;
  if (request.use_all_devices) constraints.min_devices = constraints.max_devices;
  return constraints;
}

PlanRequest WithoutGridConstraints(const PlanRequest& request) {
  PlanRequest free = request;
  free.pins.clear();
  free.first_device.clear();
  free.min_executors = 1;
  free.max_executors = 0;
  free.use_all_devices = false;
  return free;
}

std::vector<int> NumbersUpTo(int last) {
  std::vector<int> numbers;
  for (int i = 1; i <= last; i += i < kEveryNumberUpTo ? 1 : std::max(1, i / 5)) numbers.push_back(i);
  if (!numbers.empty() && numbers.back() != last) numbers.push_back(last);
  return numbers;
}

std::vector<GridShape> Shapes(const Problem& problem, const GridConstraints& constraints) {
  std::vector<int> pipelines = NumbersUpTo(std::min(constraints.max_devices, problem.request().micro_batches));
  if (constraints.replicas != kAutoReplicas) pipelines = {constraints.replicas};
  std::vector<GridShape> shapes;
  for (const int d : pipelines) {
    if (d < 2 || d > problem.request().micro_batches) continue;
    std::vector<int> stages = NumbersUpTo(std::min(constraints.max_devices / d, constraints.max_stages));
    if (constraints.stages > 0) stages = {constraints.stages};
    for (const int s : stages) {
      if (s * d <= constraints.max_devices && s * d >= constraints.min_devices) shapes.push_back({s, d});
    }
  }
  return shapes;
}

ReplicaPlan OnePipeline(PlannedPipeline plan) {
  ReplicaPlan out{.pipelines_s = plan.predicted_step_s,
                  .predicted_step_s = plan.predicted_step_s,
                  .lower_bounds = plan.lower_bounds,
                  .lower_bound_s = plan.lower_bound_s,
                  .gap = plan.gap,
                  .evaluations = plan.evaluations,
                  .left_out = plan.left_out,
                  .explain = plan.explain};
  out.pipelines.push_back(std::move(plan));
  return out;
}

ReplicaPlan PlanOf(ReplicaEvaluator& evaluator, const FoundGrid& found) {
  const Problem& problem = evaluator.problem();
  ReplicaPlan plan;
  plan.pipelines = evaluator.PipelinePlans(found.grid, found.evaluation.shares, kPlanner);
  plan.chains = evaluator.Chains(found.grid);
  plan.pipelines_s = found.evaluation.pipelines_s;
  plan.sync_s = found.evaluation.sync_s;
  plan.sync_bytes = AllReduceBytes(plan.chains);
  plan.sync = UsageOf(problem, plan.chains);
  plan.predicted_step_s = found.evaluation.step_s();
  plan.evaluations = evaluator.evaluations();
  const PlanRequest& request = problem.request();
  std::vector<char> used(request.devices.size(), 0);
  for (const std::vector<int>& row : found.grid.devices) {
    for (const int device : row) used[device] = 1;
  }
  for (size_t d = 0; d < used.size(); ++d) {
    const std::string& name = request.devices[d].name;
    if (!used[d] && std::find(request.exclude.begin(), request.exclude.end(), name) == request.exclude.end()) plan.left_out.push_back(name);
  }
  plan.explain = ExplainReplicas(problem, plan);
  return plan;
}

// Of a plan with one pipeline: its seconds to an equal loss.
double CostOf(const PlannedPipeline& plan) {
  double loss_cost = 0;
  for (const PlannedLink& link : plan.links) loss_cost += link.loss_cost;
  return plan.predicted_step_s * (1 + kTimePerNat * loss_cost);
}

// The planner decides how many: the better of one pipeline and the best grid.
ReplicaOutcome Better(PlanOutcome one, const GridSearchResult& answer, ReplicaEvaluator& evaluator, std::vector<LowerBound> bounds) {
  const auto* single = std::get_if<PlannedPipeline>(&one);
  if (single == nullptr && !answer.best.has_value()) return std::get<PlanError>(std::move(one));
  std::string rejected;
  ReplicaPlan plan;
  if (single == nullptr || (answer.best.has_value() && answer.best->evaluation.cost_s() < CostOf(*single) * (1 - kSameTime))) {
    plan = PlanOf(evaluator, *answer.best);
    rejected = single == nullptr ? absl::StrCat("one pipeline is not possible: ", std::get<PlanError>(one).message)
                                 : absl::StrFormat("the best plan with one pipeline takes %.4g s", single->predicted_step_s);
  } else {
    plan = OnePipeline(std::get<PlannedPipeline>(std::move(one)));
    plan.explain.pop_back();  // the bound among plans with one pipeline
    rejected = answer.best.has_value() ? absl::StrFormat("the best plan with several pipelines has %d and takes %.4g s",
                                                         answer.best->grid.pipelines(), answer.best->evaluation.step_s())
                                       : "no plan with several pipelines is possible";
  }
  plan.explain.push_back(std::move(rejected));
  SetBounds(std::move(bounds), plan);
  return plan;
}

double BalancedSeconds(const Problem& problem, int max_devices) {
  std::vector<double> speeds;
  std::map<int, int> device_of_class;
  for (const int device : problem.usable()) {
    const double whole_s = WholeModelSeconds(problem, device);
    if (whole_s <= 0) return 0;
    speeds.push_back(1 / whole_s);
    device_of_class.emplace(problem.request().devices[device].cost_class, device);
  }
  std::sort(speeds.rbegin(), speeds.rend());
  double speed = 0, work = 0;
  for (int k = 0; k < std::min<int>(max_devices, static_cast<int>(speeds.size())); ++k) speed += speeds[k];
  for (int p = 0; p < problem.positions(); ++p) {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [cost_class, device] : device_of_class) {
      const double op_s = problem.ForwardSeconds(p, p + 1, device) + problem.BackwardSeconds(p, p + 1, device);
      least = std::min(least, op_s / WholeModelSeconds(problem, device));
    }
    work += least;
  }
  return problem.request().micro_batches * work / speed;
}

}  // namespace

void SetBounds(std::vector<LowerBound> bounds, ReplicaPlan& plan) {
  plan.lower_bounds = std::move(bounds);
  const LowerBound* const binding = BindingBound(plan.lower_bounds);
  plan.lower_bound_s = binding == nullptr ? 0 : binding->seconds;
  plan.gap = plan.lower_bound_s > 0 ? std::max(0.0, plan.predicted_step_s / plan.lower_bound_s - 1) : 0;
  plan.explain.push_back(ExplainBound(plan.lower_bounds, plan.gap));
}

absl::StatusOr<std::vector<LowerBound>> ReplicaBounds(const Problem& problem, int max_pipelines, int max_devices) {
  PlanRequest share = problem.request();
  if (share.recompute && share.recompute_is_a_choice) {  // see LowerBounds
    share.recompute = false;
    FUSIONLLM_ASSIGN_OR_RETURN(auto without, Problem::Create(share));
    if (const auto* other = std::get_if<std::unique_ptr<Problem>>(&without)) return ReplicaBounds(**other, max_pipelines, max_devices);
  }
  share.micro_batches = (share.micro_batches + max_pipelines - 1) / max_pipelines;
  FUSIONLLM_ASSIGN_OR_RETURN(auto created, Problem::Create(share));
  const auto* of_share = std::get_if<std::unique_ptr<Problem>>(&created);
  if (of_share == nullptr) return absl::InternalError("a share of a step that is possible is not");
  std::vector<LowerBound> bounds = LowerBounds(**of_share);
  for (LowerBound& bound : bounds) {
    if (bound.name == "work") {
      bound.seconds = (BalancedSeconds(problem, max_devices) + problem.request().step_overhead_s) * kRounding;
      bound.why = absl::StrFormat("%d micro-batches shared out over the %d fastest devices that may be used, none of them ever idle",
                                  problem.request().micro_batches, max_devices);
    } else if (bound.name == "spanning-tree") {
      bound = {.name = bound.name, .why = "of several pipelines none passes every device"};
    } else if (bound.holds && bound.name != "longest-path") {
      absl::StrAppendFormat(&bound.why, " (of %d pipelines at most one has so many of the %d micro-batches, or more)", max_pipelines,
                            problem.request().micro_batches);
    }
  }
  return bounds;
}

absl::StatusOr<ReplicaOutcome> PlanReplicas(absl::string_view planner, const PlanRequest& request, int replicas, StopFunction stop) {
  if (replicas < 0) return absl::InvalidArgumentError(absl::StrFormat("%d replicas are asked for", replicas));
  const auto one_pipeline = [&](const std::string& why) -> absl::StatusOr<ReplicaOutcome> {
    FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, MakePlan(planner, request, stop));
    if (auto* refusal = std::get_if<PlanError>(&outcome)) return ReplicaOutcome(std::move(*refusal));
    ReplicaPlan plan = OnePipeline(std::get<PlannedPipeline>(std::move(outcome)));
    if (!why.empty()) plan.explain.push_back(absl::StrCat("one pipeline: ", why));
    return ReplicaOutcome(std::move(plan));
  };
  if (replicas == 1) return one_pipeline("");
  const PlanRequest free = WithoutGridConstraints(request);
  FUSIONLLM_ASSIGN_OR_RETURN(auto created, Problem::Create(free, stop));
  if (auto* refusal = std::get_if<PlanError>(&created)) return ReplicaOutcome(std::move(*refusal));
  const Problem& problem = *std::get<std::unique_ptr<Problem>>(created);
  if (std::optional<SinglePipelineConstraint> only = SinglePipelineConstraintOf(planner, request, problem); only.has_value()) {
    if (replicas != kAutoReplicas || planner != kPlanner) return ReplicaOutcome(std::move(only->refusal));
    return one_pipeline(only->why);
  }
  const GridConstraints constraints = GridConstraintsOf(request, problem, replicas);
  const std::vector<GridShape> shapes = Shapes(problem, constraints);
  if (shapes.empty()) {
    if (replicas != kAutoReplicas) return ReplicaOutcome(NoFeasibleShape(constraints, request.micro_batches));
    return one_pipeline("neither the micro-batches nor the executors of the job allow more");
  }
  ReplicaEvaluator evaluator(problem);
  const GridSearchResult answer = SearchGrids(evaluator, shapes);
  if (problem.Stopped()) return absl::CancelledError("planning was stopped");
  int max_pipelines = 1;
  for (const GridShape& shape : shapes) max_pipelines = std::max(max_pipelines, shape.pipelines);
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<LowerBound> bounds, ReplicaBounds(problem, max_pipelines, constraints.max_devices));
  if (replicas == kAutoReplicas) {
    FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome one, MakePlan(planner, request, stop));
    return Better(std::move(one), answer, evaluator, std::move(bounds));
  }
  if (!answer.best.has_value()) {
    return ReplicaOutcome(answer.failed.has_value() ? NoGridFits(problem, *answer.failed)
                                                    : NoFeasibleShape(constraints, request.micro_batches));
  }
  ReplicaPlan plan = PlanOf(evaluator, *answer.best);
  SetBounds(std::move(bounds), plan);
  return ReplicaOutcome(std::move(plan));
}

}  // namespace fusionllm::scheduler::replicas
