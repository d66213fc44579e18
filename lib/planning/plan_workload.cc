#include "lib/planning/plan_workload.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "lib/base/status_macros.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/plan_document.h"
#include "lib/planning/replica_workload.h"
#include "lib/planning/stage_memory.h"
#include "lib/runtime/device_pacer.h"
#include "lib/scheduler/strategy.h"

namespace fusionllm::planning {
namespace {

using runtime::Recompute;
using scheduler::Plan;
using scheduler::PlanOutcome;
using scheduler::Refusal;

class Planner {
 public:
  Planner(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options)
      : workload_(workload), profiles_(profiles), options_(options) {
    strategy_ = options.strategy.empty() ? job::ToString(workload.job.spec.strategy.planner) : options.strategy;
  }

  absl::StatusOr<PlanOutcome> PlanWith(Recompute recompute) {
    recompute_ = recompute;
    FUSIONLLM_ASSIGN_OR_RETURN(request_, MakeRequest(workload_, profiles_, options_, recompute));
    scheduler::PlanRequest request = request_.request;
    return PlanThatFits(request, PolicyOf(workload_.job.spec.compression));
  }

  // Of what PlanWith returned, whichever call it was.
  wire::PlanAnswer Document(const PlanOutcome& outcome, Recompute recompute, double cpu_seconds) const {
    return PlanAnswerOf(outcome, {workload_, request_, recompute, options_.explain}, cpu_seconds);
  }

 private:
  // Plans until the exact memory of every stage fits, and puts it into the plan.
  absl::StatusOr<PlanOutcome> PlanThatFits(scheduler::PlanRequest& request, const compression::Policy& policy) {
    const CompressionPolicy codecs(policy, CodecDevice(profiles_));
    request.codec_policy = &codecs;
    Refusal refusal;
    for (int round = 0; round < kMostMemoryRounds; ++round) {
      FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, scheduler::MakePlan(strategy_, request, options_.stop));
      if (std::holds_alternative<Refusal>(outcome)) return round == 0 ? outcome : PlanOutcome(refusal);
      FUSIONLLM_ASSIGN_OR_RETURN(std::optional<Refusal> misfit,
                                 FitStageMemory(workload_, profiles_, recompute_, std::get<Plan>(outcome), request));
      if (!misfit.has_value()) return outcome;
      refusal = *std::move(misfit);
    }
    return PlanOutcome(refusal);
  }

  const workload::Workload& workload_;
  const Profiles& profiles_;
  const PlanOptions& options_;
  std::string strategy_;
  Request request_;  // prices do not depend on recomputation
  Recompute recompute_ = Recompute::kNone;
};

// A plan that uses so much of a device that memory may have limited its depth.
constexpr double kTightMemory = 0.6;

bool MemoryIsTight(const PlanOutcome& outcome, const Profiles& profiles) {
  if (const auto* refusal = std::get_if<Refusal>(&outcome)) return refusal->shortfall.what == "memory_bytes";
  const auto& stages = std::get<Plan>(outcome).stages;
  return std::any_of(stages.begin(), stages.end(), [&](const scheduler::PlanStage& stage) {
    return static_cast<double>(stage.memory_bytes) > kTightMemory * static_cast<double>(profiles.devices[stage.devices[0]].memory_bytes);
  });
}

bool IsFaster(const PlanOutcome& outcome, const PlanOutcome& than) {
  const auto *a = std::get_if<Plan>(&outcome), *b = std::get_if<Plan>(&than);
  return a != nullptr && (b == nullptr || a->predicted_step_s < b->predicted_step_s);
}

}  // namespace

absl::StatusOr<PlannedWorkload> PlanWorkloadInFull(const workload::Workload& workload, const Profiles& profiles,
                                                   const PlanOptions& options) {
  if (profiles.devices.empty()) {
    const Refusal refusal{.reason = "NoExecutors", .message = "there is no device to plan on", .shortfall = {"executors", 1, 0}};
    return PlannedWorkload{
        .answer = wire::RefusalDocument{.reason = refusal.reason, .message = refusal.message, .shortfall = {"executors", 1, 0}},
        .outcome = refusal};
  }
  if (workload.job.spec.strategy.replicas != 1) return PlanReplicatedWorkload(workload, profiles, options);
  const int64_t begin = runtime::ThreadCpuNanoseconds();
  const job::Recompute wish = workload.job.spec.training.recompute;
  Planner planner(workload, profiles, options);
  const Recompute first = wish == job::Recompute::kFull ? Recompute::kFull : Recompute::kNone;
  Recompute chosen = first;
  FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, planner.PlanWith(first));
  if (wish == job::Recompute::kAuto && MemoryIsTight(outcome, profiles)) {
    FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome sparing, planner.PlanWith(Recompute::kFull));
    if (IsFaster(sparing, outcome)) {
      outcome = std::move(sparing);
      chosen = Recompute::kFull;
    }
  }
  PlannedWorkload planned{.recompute = chosen};
  planned.answer = planner.Document(outcome, chosen, static_cast<double>(runtime::ThreadCpuNanoseconds() - begin) * 1e-9);
  planned.outcome = std::move(outcome);
  return planned;
}

absl::StatusOr<wire::PlanAnswer> PlanWorkload(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, PlanWorkloadInFull(workload, profiles, options));
  return std::move(planned.answer);
}

absl::StatusOr<Plan> RefitWorkload(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options,
                                   const PlannedWorkload& planned, scheduler::Keep keep, scheduler::Schedule schedule) {
  FUSIONLLM_ASSIGN_OR_RETURN(Request request, MakeRequest(workload, profiles, options, planned.recompute));
  if (schedule != scheduler::Schedule::kAuto) request.request.schedule = schedule;
  const CompressionPolicy codecs(PolicyOf(workload.job.spec.compression), CodecDevice(profiles));
  request.request.codec_policy = &codecs;
  return scheduler::RefitPlan(request.request, std::get<Plan>(planned.outcome), keep);
}

}  // namespace fusionllm::planning
