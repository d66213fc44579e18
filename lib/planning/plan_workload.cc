#include "lib/planning/plan_workload.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/micro_batch_choice.h"
#include "lib/planning/micro_batch_sizes.h"
#include "lib/planning/plan_alternatives.h"
#include "lib/planning/plan_of_pipeline.h"
#include "lib/planning/replica_workload.h"
#include "lib/planning/stage_memory.h"
#include "lib/planning/tied_codecs.h"
#include "lib/runtime/device_throttle.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"

namespace fusionllm::planning {
namespace {

using plan::PlanError;
using runtime::Recompute;
using scheduler::PlannedPipeline;
using scheduler::PlanOutcome;

bool IsFaster(const PlanOutcome& outcome, const PlanOutcome& than) {
  const auto *a = std::get_if<PlannedPipeline>(&outcome), *b = std::get_if<PlannedPipeline>(&than);
  return a != nullptr && (b == nullptr || a->predicted_step_s < b->predicted_step_s);
}

// Random plans that are weighed where a search has none that fits, if there are few enough devices for luck to find one.
constexpr int kDraws = 32;
constexpr size_t kMaxDevicesDrawn = 16;

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
    const CompressionPolicy codecs(LinkPolicyOf(workload_), CodecReferenceDevice(profiles_));
    request.codec_policy = &codecs;
    return PlanThatFits(request);
  }

  // Of what PlanWith returned, whichever call it was.
  plan::PlanResult Document(const PlanOutcome& outcome, Recompute recompute, double cpu_seconds) const {
    return PlanResultOf(outcome, {workload_, request_, recompute, options_.explain}, cpu_seconds);
  }

 private:
  absl::StatusOr<PlanOutcome> PlanThatFits(const scheduler::PlanRequest& request) const {
    scheduler::PlanRequest attempt = request;
    FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, Fit(strategy_, attempt, MemoryReduction::kCumulative));
    const auto* refusal = std::get_if<PlanError>(&outcome);
    const bool searches = strategy_ == "op-fence" || strategy_ == "exact";
    if (refusal == nullptr || !searches || refusal->shortfall.what != "memory_bytes") return outcome;
    return FastestOfRivals(request, std::move(outcome), attempt.memory_is_lowered);
  }

  struct Rival {
    std::string planner;
    uint64_t seed = 0;
    MemoryReduction lowering = MemoryReduction::kLatestOnly;
  };

  // The memory that a search plans on is an estimate. Plans that are fast by it may all come out too large, and memory taken from their
  // devices bars others that would fit. A refusal is the truth only once the simple planners' plans have been weighed as well; they take
  // hardly any time. `misfits`: the search had plans, which turned out too large.
  absl::StatusOr<PlanOutcome> FastestOfRivals(const scheduler::PlanRequest& request, PlanOutcome refused, bool misfits) const {
    std::vector<Rival> rivals;
    if (misfits) rivals.push_back({strategy_, options_.seed, MemoryReduction::kLatestOnly});
    for (const char* simple : {"equal-ops", "equal-compute", "dt-fm"}) {
      for (const MemoryReduction lowering : {MemoryReduction::kLatestOnly, MemoryReduction::kCumulative})
        rivals.push_back({simple, options_.seed, lowering});
    }
    const int draws = request.devices.size() <= kMaxDevicesDrawn ? kDraws : 0;
    for (int draw = 0; draw < draws; ++draw)
      rivals.push_back({"random", options_.seed + static_cast<uint64_t>(draw), MemoryReduction::kLatestOnly});
    PlanOutcome best = std::move(refused);
    std::string planner;
    for (const Rival& rival : rivals) {
      scheduler::PlanRequest attempt = request;
      attempt.seed = rival.seed;
      FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, Fit(rival.planner, attempt, rival.lowering));
      if (!IsFaster(outcome, best)) continue;
      best = std::move(outcome);
      planner = rival.planner;
    }
    if (auto* plan = std::get_if<PlannedPipeline>(&best); plan != nullptr && planner != strategy_) {
      plan->strategy = strategy_;
      plan->explain.insert(plan->explain.begin(),
                           absl::StrCat("of the plans that ", strategy_,
                                        " found none fitted the memory of its devices: these are the stages of ", planner, ", which do"));
    }
    return best;
  }

  // Plans until the exact memory of every stage fits, and puts it into the plan.
  absl::StatusOr<PlanOutcome> Fit(const std::string& strategy, scheduler::PlanRequest& request, MemoryReduction lowering) const {
    PlanError refusal;
    for (int round = 0; round < kMaxMemoryRounds; ++round) {
      FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, scheduler::MakePlan(strategy, request, options_.stop));
      if (std::holds_alternative<PlanError>(outcome)) return round == 0 ? outcome : PlanOutcome(refusal);
      FUSIONLLM_ASSIGN_OR_RETURN(std::optional<PlanError> misfit,
                                 FitStageMemory(workload_, profiles_, recompute_, std::get<PlannedPipeline>(outcome), request, lowering));
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
  if (const auto* refusal = std::get_if<PlanError>(&outcome)) return refusal->shortfall.what == "memory_bytes";
  const auto& stages = std::get<PlannedPipeline>(outcome).stages;
  return std::any_of(stages.begin(), stages.end(), [&](const scheduler::PlannedStage& stage) {
    return static_cast<double>(stage.memory_bytes) > kTightMemory * static_cast<double>(profiles.devices[stage.devices[0]].memory_bytes);
  });
}

}  // namespace

absl::StatusOr<PlannedWorkload> PlanWorkloadDetailed(const workload::Workload& workload, const Profiles& given,
                                                     const PlanOptions& options) {
  const bool any_size = workload.job.spec.training.micro_batch_size == 0 && !given.devices.empty();
  std::optional<Profiles> inferred;
  if (!any_size) {
    FUSIONLLM_ASSIGN_OR_RETURN(inferred, InferredProfiles(workload, given));
  }
  const Profiles& profiles = inferred.has_value() ? *inferred : given;
  const auto plan = any_size ? PlanWithBestMicroBatchSize : PlanWithFixedMicroBatchSize;
  FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, plan(workload, profiles, options));
  const workload::Workload& sized = planned.workload != nullptr ? *planned.workload : workload;
  if (auto* const document = std::get_if<plan::Plan>(&planned.answer); document != nullptr && options.alternatives) {
    AddAlternatives(sized, planned.workload != nullptr ? planned.profiles : profiles, options, *document);
  }
  auto* const refusal = std::get_if<plan::PlanError>(&planned.answer);
  if (refusal == nullptr || refusal->shortfall.what != "memory_bytes") return planned;
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string advice, MemoryHint(workload, profiles, options));
  refusal->message += advice;
  if (auto* const refused = std::get_if<PlanError>(&planned.outcome)) refused->message += advice;
  return planned;
}

absl::StatusOr<PlannedWorkload> PlanWithFixedMicroBatchSize(const workload::Workload& workload, const Profiles& profiles,
                                                            const PlanOptions& options) {
  if (profiles.devices.empty()) {
    const PlanError refusal{
        .reason = scheduler::plan_errors::kNoExecutors, .message = "there is no device to plan on", .shortfall = {"executors", 1, 0}};
    return PlannedWorkload{.answer = refusal, .outcome = refusal};
  }
  if (workload.job.spec.strategy.replicas != 1) return PlanReplicatedWorkload(workload, profiles, options);
  const int64_t begin = runtime::ThreadCpuNanoseconds();
  const job::Recompute requested = workload.job.spec.training.recompute;
  Planner planner(workload, profiles, options);
  const Recompute first = requested == job::Recompute::kFull ? Recompute::kFull : Recompute::kNone;
  Recompute chosen = first;
  FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, planner.PlanWith(first));
  if (requested == job::Recompute::kAuto && MemoryIsTight(outcome, profiles)) {
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

absl::StatusOr<plan::PlanResult> PlanWorkload(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, PlanWorkloadDetailed(workload, profiles, options));
  return std::move(planned.answer);
}

absl::StatusOr<PlannedPipeline> RecostWorkload(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options,
                                               const PlannedWorkload& planned, scheduler::RecostMode keep,
                                               std::optional<schedule::PipelineSchedule> schedule) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<Profiles> inferred, InferredProfiles(workload, profiles));
  FUSIONLLM_ASSIGN_OR_RETURN(Request request, MakeRequest(workload, inferred.value_or(profiles), options, planned.recompute));
  if (schedule.has_value()) request.request.schedule = *schedule;
  const CompressionPolicy codecs(LinkPolicyOf(workload), CodecReferenceDevice(profiles));
  request.request.codec_policy = &codecs;
  return scheduler::RecostPlan(request.request, std::get<PlannedPipeline>(planned.outcome), keep);
}

}  // namespace fusionllm::planning
