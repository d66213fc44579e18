#include "lib/scheduler/planner.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/scheduler/bounds.h"
#include "lib/scheduler/explain.h"
#include "lib/scheduler/pin_shortfall.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::scheduler {
namespace {

// A stage on a device that has no room for a process, let alone for what the stage holds.
PlanError NoRoomForAProcess(const Problem& problem, int device) {
  const PlanRequest& request = problem.request();
  return {plan_errors::kInsufficientMemory, ProcessShortfall(request, device), ProcessMemory(request, device)};
}

// Fewer devices with room for a process than there must be stages.
std::optional<PlanError> TooFewWithRoom(const Problem& problem) {
  const PlanRequest& request = problem.request();
  int with_room = 0, without = -1;
  for (const int device : problem.usable()) {
    const bool has_room = problem.UsableMemory(device) > 0;
    with_room += has_room;
    if (!has_room && (without < 0 || request.devices[device].memory_bytes > request.devices[without].memory_bytes)) without = device;
  }
  if (without < 0 || with_room >= problem.min_stages()) return std::nullopt;
  PlanError refusal = NoRoomForAProcess(problem, without);
  absl::StrAppendFormat(&refusal.message, "; %s asks for %s, and %d of %d may run one",
                        request.stages > 0        ? "spec.strategy.stages"
                        : request.use_all_devices ? "the planner, which uses all executors,"
                                                  : "spec.executors.min",
                        base::Pluralize(problem.min_stages(), "stage"), with_room, static_cast<int>(problem.usable().size()));
  return WithMemoryRemedy(std::move(refusal), ", or ask for fewer");
}

// What of `bytes` of memory no stage may use; empty: nothing.
std::string MemoryNotForStages(const PlanRequest& request, int64_t bytes) {
  std::vector<std::string> less;
  if (request.memory_reserve_bytes > 0) {
    less.push_back(
        absl::StrFormat("what each process takes before its first op, %s", SizeText(static_cast<double>(request.memory_reserve_bytes))));
  }
  if (request.memory_headroom > 0) less.push_back(absl::StrFormat("the %.0f%% that stay free", 100 * request.memory_headroom));
  if (less.empty()) return "";
  return absl::StrFormat(" (of %s, less %s)", SizeText(static_cast<double>(bytes)), absl::StrJoin(less, " and "));
}

// Devices in descending memory take the longest prefix that fits; what the last one would have to take is what is missing.
PlanError GreedyShortfall(const Problem& problem) {
  std::vector<int> devices = problem.usable();
  std::stable_sort(devices.begin(), devices.end(), [&](int a, int b) { return problem.UsableMemory(a) > problem.UsableMemory(b); });
  int begin = 0;
  const int count = problem.max_stages();
  for (int s = 0; s + 1 < count; ++s) {
    int end = std::max(begin + 1, s == 0 ? problem.first_cut() : 0);
    while (end < problem.positions() - 1 && problem.StandaloneBytes(begin, end + 1) <= problem.UsableMemory(devices[s])) ++end;
    if (end >= problem.positions()) break;
    begin = end;
  }
  const double needed = static_cast<double>(problem.StandaloneBytes(begin, problem.positions()));
  const double largest = static_cast<double>(problem.UsableMemory(devices[count - 1]));
  if (largest == 0) return WithMemoryRemedy(NoRoomForAProcess(problem, devices[count - 1]), "");
  if (needed <= largest) {
    return WithMemoryRemedy({plan_errors::kInsufficientMemory,
                             "one micro-batch in flight would fit the memory of the executors, and no placement was found for as many as "
                             "the schedule keeps (gpipe: all of a step)",
                             {"memory_bytes", needed, largest}});
  }
  const Device& last = problem.request().devices[devices[count - 1]];
  return WithMemoryRemedy({plan_errors::kInsufficientMemory,
                           absl::StrFormat("stage %d needs %s, largest free device has %s for it, %s%s", count - 1, SizeText(needed),
                                           SizeText(largest), last.name, MemoryNotForStages(problem.request(), last.memory_bytes)),
                           {"memory_bytes", needed, largest}});
}

// No placement that was found keeps to the limit: what the declared order would send tells by how much.
PlanError EgressShortfall(const Problem& problem, Evaluator& evaluator) {
  const int stages = std::max(problem.min_stages(), std::min(problem.max_stages(), 2));
  Assignment assignment{.devices = {problem.usable().begin(), problem.usable().begin() + stages}};
  for (int s = 0; s < stages; ++s) assignment.begins.push_back(s == 0 ? 0 : problem.first_cut() + s - 1);
  const Evaluation evaluation = evaluator.Evaluate(assignment, Effort::kQuick);
  if (evaluation.feasibility == Evaluation::Feasibility::kEgressLimitExceeded) return PlanErrorFor(problem, assignment, evaluation);
  return {plan_errors::kEgressLimitExceeded,
          absl::StrFormat("no placement was found that fits memory and sends no more than %s a step from any site to others",
                          SizeText(static_cast<double>(*problem.request().max_egress_bytes))),
          {}};
}

}  // namespace

PlanError PlanErrorFor(const Problem& problem, const Assignment& assignment, const Evaluation& evaluation) {
  const PlanRequest& request = problem.request();
  const std::string device = request.devices[assignment.devices[evaluation.stage]].name;
  switch (evaluation.feasibility) {
    case Evaluation::Feasibility::kTooMuchMemory: {
      const double needed = static_cast<double>(evaluation.needed_bytes);
      const double available = static_cast<double>(problem.UsableMemory(assignment.devices[evaluation.stage]));
      if (available == 0) return NoRoomForAProcess(problem, assignment.devices[evaluation.stage]);
      return {plan_errors::kInsufficientMemory,
              absl::StrFormat("stage %d needs %s, device %s has %s", evaluation.stage, SizeText(needed), device, SizeText(available)),
              {"memory_bytes", needed, available}};
    }
    case Evaluation::Feasibility::kEgressLimitExceeded: {
      const double needed = static_cast<double>(evaluation.needed_bytes), allowed = static_cast<double>(*request.max_egress_bytes);
      return {plan_errors::kEgressLimitExceeded,
              absl::StrFormat("site %s would send %s to other sites in a step, the job allows %s",
                              request.devices[assignment.devices[evaluation.stage]].site, SizeText(needed), SizeText(allowed)),
              {"egress_bytes", needed, allowed}};
    }
    case Evaluation::Feasibility::kDisconnected: {
      const std::string other = request.devices[assignment.devices[evaluation.other_stage]].name;
      return {plan_errors::kDisconnectedDevices,
              absl::StrFormat("stage %d on %s must exchange tensors with stage %d on %s, and no link joins them both ways",
                              evaluation.stage, device, evaluation.other_stage, other),
              {}};
    }
    default: {
      const int begin = assignment.begins[evaluation.stage];
      const bool of_data = begin == 0 && !request.first_device.empty() && device != request.first_device;
      return {plan_errors::kPinConflict,
              of_data
                  ? absl::StrFormat("this planner runs the first stage on %s, and %s has the training data (spec.data.clusters); op-fence "
                                    "puts it there",
                                    device, request.first_device)
                  : absl::StrFormat("this planner puts op '%s' and what follows it on %s against a pin; op-fence honours pins",
                                    request.ops[problem.op_at(begin)].name, device),
              {}};
    }
  }
}

PlanError WithMemoryRemedy(PlanError refusal, absl::string_view also) {
  if (refusal.reason == plan_errors::kInsufficientMemory || refusal.reason == plan_errors::kOpTooLarge) {
    absl::StrAppend(&refusal.message, MemoryRemedy(also));
  }
  return refusal;
}

PlanError ExplainInfeasible(const Problem& problem, Evaluator& evaluator) {
  const PlanRequest& request = problem.request();
  int64_t largest = 0, together = 0, together_whole = 0;
  std::vector<std::pair<int64_t, int64_t>> memories;  // for stages, and all of it
  for (int device : problem.usable()) memories.emplace_back(problem.UsableMemory(device), request.devices[device].memory_bytes);
  std::sort(memories.rbegin(), memories.rend());
  largest = memories[0].first;
  const Device& roomiest = request.devices[*std::max_element(problem.usable().begin(), problem.usable().end(), [&](int a, int b) {
    return request.devices[a].memory_bytes < request.devices[b].memory_bytes;
  })];
  if (largest == 0) {
    return WithMemoryRemedy(
        {plan_errors::kInsufficientMemory,
         absl::StrFormat("an executor takes %s before its first op, and %s, which has the most, has %s",
                         SizeText(static_cast<double>(request.memory_reserve_bytes)), roomiest.name,
                         SizeText(static_cast<double>(roomiest.memory_bytes))),
         {"memory_bytes", static_cast<double>(request.memory_reserve_bytes), static_cast<double>(roomiest.memory_bytes)}},
        "");
  }
  if (std::optional<PlanError> few = TooFewWithRoom(problem)) return *std::move(few);
  for (int k = 0; k < problem.max_stages(); ++k) {
    together += memories[k].first;
    together_whole += memories[k].second;
  }
  for (int p = 0; p < problem.positions(); ++p) {
    const int64_t need = problem.StandaloneBytes(p, p + 1);
    if (need > largest) {
      return WithMemoryRemedy({plan_errors::kOpTooLarge,
                               absl::StrFormat("op '%s' alone needs %s, the largest free device, %s, has %s for it%s",
                                               request.ops[problem.op_at(p)].name, SizeText(static_cast<double>(need)), roomiest.name,
                                               SizeText(static_cast<double>(largest)), MemoryNotForStages(request, roomiest.memory_bytes)),
                               {"memory_bytes", static_cast<double>(need), static_cast<double>(largest)}});
    }
  }
  const int64_t whole = problem.StandaloneBytes(0, problem.positions());
  if (whole > together) {
    return WithMemoryRemedy({plan_errors::kInsufficientMemory,
                             absl::StrFormat("the job needs %s with one micro-batch in flight, the %s it may use %s %s together for it%s",
                                             SizeText(static_cast<double>(whole)), base::Pluralize(problem.max_stages(), "executor"),
                                             problem.max_stages() == 1 ? "has" : "have", SizeText(static_cast<double>(together)),
                                             MemoryNotForStages(request, together_whole)),
                             {"memory_bytes", static_cast<double>(whole), static_cast<double>(together)}},
                            ", let more executors take part, or train a smaller model");
  }
  if (problem.HasPins()) {
    if (std::optional<PlanError> shortfall = PinShortfall(problem)) return *std::move(shortfall);
  }
  for (size_t a = 0; a < problem.usable().size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      const int x = problem.usable()[b], y = problem.usable()[a];
      if (problem.Connected(x, y) || problem.max_stages() == 1) continue;
      if (whole <= largest && problem.min_stages() == 1) continue;
      return {plan_errors::kDisconnectedDevices,
              absl::StrFormat("no placement works with the links there are: %s and %s, among others, are not joined both ways",
                              problem.request().devices[x].name, problem.request().devices[y].name),
              {}};
    }
  }
  if (request.max_egress_bytes.has_value()) return EgressShortfall(problem, evaluator);
  if (problem.HasPins()) {
    return {plan_errors::kPinConflict,
            absl::StrFormat(
                "no placement was found that fits the memory of the executors and honours %s%s", DeviceConstraints(request),
                request.stages > 0 ? absl::StrCat(" with ", base::Pluralize(request.stages, "stage"), " (spec.strategy.stages)") : ""),
            {}};
  }
  return GreedyShortfall(problem);
}

PlannedPipeline CompletePlan(const Problem& problem, Evaluator& evaluator, const Assignment& assignment, absl::string_view planner,
                             bool proven) {
  const PlanRequest& request = problem.request();
  PlannedPipeline plan = evaluator.ToPlan(assignment, planner);
  plan.evaluations = evaluator.evaluations();
  plan.lower_bounds = LowerBounds(problem);
  if (proven) plan.lower_bounds.push_back(SearchBound(problem, plan.predicted_step_s));
  if (const LowerBound* binding = BindingBound(plan.lower_bounds)) plan.lower_bound_s = binding->seconds;
  plan.gap = plan.lower_bound_s > 0 ? std::max(0.0, plan.predicted_step_s / plan.lower_bound_s - 1) : 0;
  std::vector<char> used(request.devices.size(), 0);
  for (const PlannedStage& stage : plan.stages) used[stage.devices[0]] = 1;
  const std::set<absl::string_view> excluded(request.exclude.begin(), request.exclude.end());
  for (size_t d = 0; d < request.devices.size(); ++d) {
    if (!used[d] && !excluded.contains(request.devices[d].name)) plan.left_out.push_back(request.devices[d].name);
  }
  plan.explain = Explain(problem, plan);
  if (request.weigh_alternatives) {
    for (std::string& line : ExplainAlternatives(problem, evaluator, assignment, plan)) plan.explain.push_back(std::move(line));
  }
  plan.explain.push_back(ExplainBound(plan.lower_bounds, plan.gap));
  return plan;
}

absl::StatusOr<PlanOutcome> Planner::Plan(const PlanRequest& request, StopFunction stop) const {
  FUSIONLLM_ASSIGN_OR_RETURN(auto created, Problem::Create(request, std::move(stop)));
  if (auto* refusal = std::get_if<PlanError>(&created)) return PlanOutcome(std::move(*refusal));
  const Problem& problem = *std::get<std::unique_ptr<Problem>>(created);
  Evaluator evaluator(problem);
  bool proven = false;
  auto found = Search(problem, evaluator, &proven);
  // A search that was cut short may also have nothing, or not its best: its client is gone.
  if (problem.Stopped()) return absl::CancelledError("planning was stopped");
  if (auto* refusal = std::get_if<PlanError>(&found)) return PlanOutcome(std::move(*refusal));
  const Assignment& assignment = std::get<Assignment>(found);
  if (const std::unique_ptr<Reordered> better = Reorder(problem, evaluator, assignment)) {
    Evaluator other(*better->problem);
    return PlanOutcome(CompletePlan(*better->problem, other, better->assignment, name(), proven));
  }
  if (problem.Stopped()) return absl::CancelledError("planning was stopped");
  return PlanOutcome(CompletePlan(problem, evaluator, assignment, name(), proven));
}

std::unique_ptr<Reordered> Planner::Reorder(const Problem&, Evaluator&, const Assignment&) const { return nullptr; }

std::vector<absl::string_view> PlannerNames() { return {"op-fence", "equal-ops", "equal-compute", "exact", "dt-fm", "random"}; }

absl::StatusOr<std::unique_ptr<Planner>> CreatePlanner(absl::string_view name) {
  if (name == "op-fence") return MakeOpFence();
  if (name == "equal-ops") return MakeEqualOps();
  if (name == "equal-compute") return MakeEqualCompute();
  if (name == "exact") return MakeExact();
  if (name == "dt-fm") return MakeDtFm();
  if (name == "random") return MakeRandom();
  return absl::NotFoundError(absl::StrFormat("no planner '%s'; there are %s", name, absl::StrJoin(PlannerNames(), ", ")));
}

absl::StatusOr<PlanOutcome> MakePlan(absl::string_view planner, const PlanRequest& request, StopFunction stop) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Planner> created, CreatePlanner(planner));
  return created->Plan(request, std::move(stop));
}

}  // namespace fusionllm::scheduler
