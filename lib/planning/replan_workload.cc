#include "lib/planning/replan_workload.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/confidence.h"
#include "lib/planning/micro_batch_sizes.h"
#include "lib/planning/plan_of_pipeline.h"
#include "lib/planning/stage_memory.h"
#include "lib/planning/tied_codecs.h"
#include "lib/runtime/device_throttle.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/reorder.h"
#include "lib/scheduler/replan/repair.h"

namespace fusionllm::planning {
namespace {

using plan::PlanError;
using scheduler::replan::ReplanOutcome;
using scheduler::replan::ReplanResult;
using scheduler::replan::RunningPlan;

absl::StatusOr<RunningPlan> StagesOf(const workload::Workload& workload, const plan::Plan& plan) {
  const std::string hash = absl::StrFormat("%016x", workload.graph_hash);
  if (plan.graph_hash != hash) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan.graph_hash: the plan is of another model (", plan.graph_hash, ") than the job (", hash, ")"));
  }
  if (plan.micro_batches != workload.micro_batches) {
    return absl::InvalidArgumentError(absl::StrFormat("plan.micro_batches: the plan is of steps of %d micro-batches, the job's have %d",
                                                      plan.micro_batches, workload.micro_batches));
  }
  if (plan.micro_batch_size != workload.micro_batch_size) {
    return absl::InvalidArgumentError(
        absl::StrFormat("plan.micro_batch_size: the plan is of micro-batches of %d samples, the job's have %d", plan.micro_batch_size,
                        workload.micro_batch_size));
  }
  if (plan.replicas > 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("plan.replicas: the plan has %d pipelines side by side; what is near a running plan is searched for with one. Plan "
                        "from scratch, without "
                        "the running plan, and compare the two",
                        plan.replicas));
  }
  RunningPlan stages;
  for (const plan::Stage& stage : plan.stages) stages.push_back({stage.devices.front(), stage.ops});
  return stages;
}

runtime::Recompute RecomputeOf(const plan::Plan& plan) {
  return plan.recompute == "full" ? runtime::Recompute::kFull : runtime::Recompute::kNone;
}

// The job left the size of micro-batches to the planner, and a running one keeps what the plan has: another has other bits.
bool HasChosenSize(const workload::Workload& workload, const plan::Plan& plan) {
  const job::Training& training = workload.job.spec.training;
  return training.micro_batch_size == 0 && training.global_batch_size % plan.micro_batch_size == 0;
}

wire::ReplanDecision DecisionOf(ReplanResult::Decision decision) {
  switch (decision) {
    case ReplanResult::Decision::kStay:
      return wire::ReplanDecision::kStay;
    case ReplanResult::Decision::kMove:
      return wire::ReplanDecision::kMove;
    default:
      return wire::ReplanDecision::kMustMove;
  }
}

wire::ReplanDocument DocumentOf(const ReplanResult& answer, const PlanContext& context, double cpu_seconds) {
  wire::ReplanDocument document{.decision = DecisionOf(answer.decision),
                                .reason = answer.reason,
                                .running_step_seconds = answer.running_step_s,
                                .gain_seconds = answer.gain_s,
                                .plan = PlanOfPipeline(answer.plan, context, cpu_seconds),
                                .moved_bytes = answer.migration.bytes,
                                .transfer_seconds = answer.migration.transfer_s};
  for (const scheduler::replan::MovedOp& move : answer.migration.moved) {
    document.moved.push_back({.op = move.op, .from = move.from, .to = move.to, .bytes = move.bytes});
  }
  return document;
}

}  // namespace

absl::StatusOr<wire::ReplanResult> ReplanWorkload(const workload::Workload& workload, const Profiles& given, const plan::Plan& running,
                                                  const PlanOptions& options, const scheduler::replan::ReplanOptions& replan_options) {
  if (HasChosenSize(workload, running)) {
    FUSIONLLM_ASSIGN_OR_RETURN(const JobAtSize at, AtMicroBatchSize(workload, given, running.micro_batch_size));
    return ReplanWorkload(*at.workload, at.profiles, running, options, replan_options);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<Profiles> inferred, InferredProfiles(workload, given));
  const Profiles& profiles = inferred.has_value() ? *inferred : given;
  if (profiles.devices.empty()) {
    return plan::PlanError{
        .reason = scheduler::plan_errors::kNoExecutors, .message = "there is no device to plan on", .shortfall = {"executors", 1, 0}};
  }
  const int64_t begin = runtime::ThreadCpuNanoseconds();
  const auto cpu_seconds = [begin] { return static_cast<double>(runtime::ThreadCpuNanoseconds() - begin) * 1e-9; };
  const runtime::Recompute recompute = RecomputeOf(running);
  FUSIONLLM_ASSIGN_OR_RETURN(const RunningPlan stages, StagesOf(workload, running));
  FUSIONLLM_ASSIGN_OR_RETURN(const Request made, MakeRequest(workload, profiles, options, recompute));
  const CompressionPolicy codecs(LinkPolicyOf(workload), CodecReferenceDevice(profiles));
  scheduler::PlanRequest request = made.request;
  request.codec_policy = &codecs;
  const PlanContext context{workload, made, recompute, options.explain};
  PlanError refusal;
  for (int round = 0; round < kMaxMemoryRounds; ++round) {
    FUSIONLLM_ASSIGN_OR_RETURN(ReplanOutcome outcome, scheduler::replan::Replan(request, stages, replan_options, options.stop));
    if (auto* refused = std::get_if<PlanError>(&outcome)) {
      return wire::ReplanResult(WithSearchTime(round == 0 ? *refused : refusal, cpu_seconds()));
    }
    ReplanResult& answer = std::get<ReplanResult>(outcome);
    FUSIONLLM_ASSIGN_OR_RETURN(std::optional<PlanError> misfit, FitStageMemory(workload, profiles, recompute, answer.plan, request));
    if (!misfit.has_value()) return wire::ReplanResult(DocumentOf(answer, context, cpu_seconds()));
    refusal = *std::move(misfit);
  }
  return wire::ReplanResult(WithSearchTime(refusal, cpu_seconds()));
}

absl::StatusOr<std::vector<std::string>> ExplainPlan(const workload::Workload& workload, const Profiles& given, const plan::Plan& plan,
                                                     const PlanOptions& options) {
  if (HasChosenSize(workload, plan)) {
    FUSIONLLM_ASSIGN_OR_RETURN(const JobAtSize at, AtMicroBatchSize(workload, given, plan.micro_batch_size));
    return ExplainPlan(*at.workload, at.profiles, plan, options);
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<Profiles> inferred, InferredProfiles(workload, given));
  const Profiles& profiles = inferred.has_value() ? *inferred : given;
  if (profiles.devices.empty()) return absl::FailedPreconditionError("there is no device to plan on");
  FUSIONLLM_ASSIGN_OR_RETURN(const RunningPlan stages, StagesOf(workload, plan));
  FUSIONLLM_ASSIGN_OR_RETURN(const Request made, MakeRequest(workload, profiles, options, RecomputeOf(plan)));
  const CompressionPolicy codecs(LinkPolicyOf(workload), CodecReferenceDevice(profiles));
  scheduler::PlanRequest request = made.request;
  request.codec_policy = &codecs;
  request.weigh_alternatives = true;
  if (auto order = scheduler::OrderOfStages(request, stages); order.has_value()) request.order = *std::move(order);
  FUSIONLLM_ASSIGN_OR_RETURN(auto created, scheduler::Problem::Create(request, options.stop));
  if (const auto* refusal = std::get_if<PlanError>(&created)) return absl::FailedPreconditionError(refusal->message);
  const scheduler::Problem& problem = *std::get<std::unique_ptr<scheduler::Problem>>(created);
  const std::optional<scheduler::Assignment> assignment = scheduler::replan::AssignmentOf(problem, stages);
  if (!assignment.has_value()) return absl::InvalidArgumentError("plan.stages: no consecutive runs of this job's ops, or some are missing");
  for (size_t s = 0; s < stages.size(); ++s) {
    if (assignment->devices[s] < 0)
      return absl::FailedPreconditionError(absl::StrCat(stages[s].device, " may not run a stage of this job"));
  }
  scheduler::Evaluator evaluator(problem);
  const scheduler::Evaluation evaluation = evaluator.Evaluate(*assignment, scheduler::Effort::kFull);
  if (!evaluation.feasible()) return absl::FailedPreconditionError(scheduler::PlanErrorFor(problem, *assignment, evaluation).message);
  const scheduler::PlannedPipeline whole = scheduler::CompletePlan(problem, evaluator, *assignment, plan.strategy);
  std::vector<std::string> sentences = whole.explain;
  sentences.push_back(ConfidenceOf(whole, made).sentence);
  return sentences;
}

}  // namespace fusionllm::planning
