#include "lib/scheduler/recost.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/scheduler/assignment.h"
#include "lib/scheduler/problem.h"
#include "lib/scheduler/reorder.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::scheduler {
namespace {

absl::StatusOr<std::vector<int>> DevicesOf(const PlanRequest& request, const PlannedPipeline& plan) {
  std::vector<int> devices;
  for (const PlannedStage& stage : plan.stages) {
    const std::string& name = stage.device_names.front();
    const auto found = std::find_if(request.devices.begin(), request.devices.end(), [&](const Device& d) { return d.name == name; });
    const bool excluded = std::find(request.exclude.begin(), request.exclude.end(), name) != request.exclude.end();
    if (found == request.devices.end() || excluded) {
      return absl::FailedPreconditionError(absl::StrFormat("stage %d runs on %s, which is absent", stage.index, name));
    }
    devices.push_back(static_cast<int>(found - request.devices.begin()));
  }
  return devices;
}

// Where each stage begins in the problem's order of ops.
absl::StatusOr<std::vector<int>> BeginsOf(const Problem& problem, const PlannedPipeline& plan) {
  std::unordered_map<std::string, int> stage_of;
  for (const PlannedStage& stage : plan.stages) {
    for (const std::string& op : stage.op_names) stage_of[op] = stage.index;
  }
  std::vector<int> begins;
  for (int p = 0; p < problem.positions(); ++p) {
    const std::string& op = problem.request().ops[problem.op_at(p)].name;
    const auto found = stage_of.find(op);
    if (found == stage_of.end()) return absl::FailedPreconditionError(absl::StrFormat("op '%s' is in no stage of the plan", op));
    const int stages = static_cast<int>(begins.size());
    if (found->second == stages) begins.push_back(p);
    if (found->second != static_cast<int>(begins.size()) - 1) {
      return absl::FailedPreconditionError(absl::StrFormat("op '%s' now stands before stage %d", op, found->second));
    }
  }
  if (begins.size() != plan.stages.size() || stage_of.size() != static_cast<size_t>(problem.positions())) {
    return absl::FailedPreconditionError("the plan has ops that the job has not");
  }
  return begins;
}

absl::Status WhyNot(const Problem& problem, const Assignment& assignment, const Evaluation& evaluation) {
  const auto name = [&](int stage) { return problem.request().devices[assignment.devices[stage]].name; };
  if (evaluation.feasibility == Evaluation::Feasibility::kDisconnected) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s and %s are not joined both ways", name(evaluation.stage), name(evaluation.other_stage)));
  }
  return absl::FailedPreconditionError(absl::StrFormat("stage %d needs %s, %s has %s to give", evaluation.stage,
                                                       SizeText(evaluation.needed_bytes), name(evaluation.stage),
                                                       SizeText(problem.UsableMemory(assignment.devices[evaluation.stage]))));
}

}  // namespace

absl::StatusOr<PlannedPipeline> RecostPlan(const PlanRequest& request, const PlannedPipeline& plan, RecostMode keep) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int> devices, DevicesOf(request, plan));
  PlanRequest bare = request;
  if (auto order = OrderOfStages(request, StagesOf(plan)); order.has_value()) bare.order = *std::move(order);
  bare.pins.clear();
  bare.first_device.clear();
  bare.exclude.clear();
  bare.stages = 0;
  bare.min_executors = 1;
  bare.max_executors = 0;
  FUSIONLLM_ASSIGN_OR_RETURN(auto created, Problem::Create(bare));
  if (const auto* refusal = std::get_if<PlanError>(&created)) return absl::FailedPreconditionError(refusal->message);
  const Problem& problem = *std::get<std::unique_ptr<Problem>>(created);
  Assignment assignment{.devices = devices};
  FUSIONLLM_ASSIGN_OR_RETURN(assignment.begins, BeginsOf(problem, plan));
  Evaluator evaluator(problem);
  if (keep == RecostMode::kCodecsAndDepths) evaluator.Keep(&plan);
  const Evaluation evaluation = evaluator.Evaluate(assignment, Effort::kFull);
  if (!evaluation.feasible()) return WhyNot(problem, assignment, evaluation);
  PlannedPipeline refit = evaluator.ToPlan(assignment, plan.strategy);
  refit.left_out = plan.left_out;
  return refit;
}

}  // namespace fusionllm::scheduler
