#include "lib/planning/replica_workload.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/plan_figures.h"
#include "lib/planning/stage_memory.h"
#include "lib/planning/tied_codecs.h"
#include "lib/runtime/device_throttle.h"
#include "lib/scheduler/plan_error_reasons.h"

namespace fusionllm::planning {
namespace {

using plan::PlanError;
using runtime::Recompute;
using scheduler::PlannedPipeline;
using scheduler::replicas::ReplicaOutcome;
using scheduler::replicas::ReplicaPlan;

// By stage.
std::vector<int64_t> BytesInFlightOf(const std::vector<scheduler::replicas::Chain>& chains, const PlannedPipeline& pipeline) {
  std::vector<int64_t> bytes;
  for (size_t s = 0; s < chains.size(); ++s) {
    const std::vector<int>& devices = chains[s].devices;
    const auto place = std::find(devices.begin(), devices.end(), pipeline.stages[s].devices[0]) - devices.begin();
    bytes.push_back(scheduler::replicas::BytesInFlight(chains[s], static_cast<size_t>(place)));
  }
  return bytes;
}

bool IsFasterOutcome(const ReplicaOutcome& outcome, const ReplicaOutcome& than) {
  const auto *a = std::get_if<ReplicaPlan>(&outcome), *b = std::get_if<ReplicaPlan>(&than);
  return a != nullptr && (b == nullptr || a->predicted_step_s < b->predicted_step_s);
}

// `several`: what there is instead of a faster plan with one pipeline.
std::string WhyNotSeveral(const ReplicaOutcome& several) {
  const auto* plan = std::get_if<ReplicaPlan>(&several);
  if (plan == nullptr || plan->pipelines.size() == 1) return "no plan with several pipelines that fits the memory of its devices was found";
  return absl::StrFormat("the best plan with several pipelines that fits the memory of its devices has %d and takes %.4g s",
                         plan->pipelines.size(), plan->predicted_step_s);
}

class ReplicaPlanner {
 public:
  ReplicaPlanner(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options)
      : workload_(workload), profiles_(profiles), options_(options) {
    strategy_ = options.strategy.empty() ? job::ToString(workload.job.spec.strategy.planner) : options.strategy;
  }

  const Request& request() const { return request_; }

  absl::StatusOr<ReplicaOutcome> PlanWith(Recompute recompute) {
    FUSIONLLM_ASSIGN_OR_RETURN(request_, MakeRequest(workload_, profiles_, options_, recompute));
    scheduler::PlanRequest request = request_.request;
    const auto policy = LinkPolicyOf(workload_);
    const CompressionPolicy codecs(policy, CodecReferenceDevice(profiles_));
    request.codec_policy = &codecs;
    const int replicas = static_cast<int>(workload_.job.spec.strategy.replicas);
    FUSIONLLM_ASSIGN_OR_RETURN(Fitted fitted, Fit(request, recompute, replicas));
    if (replicas != scheduler::replicas::kAutoReplicas || !fitted.several_misfit) return std::move(fitted.outcome);
    // Memory was taken from devices for chunks, too, of which one pipeline has none.
    FUSIONLLM_ASSIGN_OR_RETURN(Fitted one, Fit(request, recompute, 1));
    if (!IsFasterOutcome(one.outcome, fitted.outcome)) return std::move(fitted.outcome);
    ReplicaPlan& plan = std::get<ReplicaPlan>(one.outcome);
    plan.explain.pop_back();  // the bound among plans with one pipeline
    plan.explain.push_back(WhyNotSeveral(fitted.outcome));
    SetBounds(std::move(fitted.bounds), plan);
    return std::move(one.outcome);
  }

 private:
  struct Fitted {
    ReplicaOutcome outcome;
    std::vector<plan::LowerBound> bounds;  // of the first plan, made on all the memory there is
    bool several_misfit = false;           // a plan of several pipelines did not fit
  };

  // Plans until the exact memory of every stage of every pipeline fits, and puts it into the plan.
  absl::StatusOr<Fitted> Fit(scheduler::PlanRequest request, Recompute recompute, int replicas) const {
    Fitted fitted;
    PlanError refusal;
    for (int round = 0; round < kMaxMemoryRounds; ++round) {
      FUSIONLLM_ASSIGN_OR_RETURN(fitted.outcome, scheduler::replicas::PlanReplicas(strategy_, request, replicas, options_.stop));
      if (std::holds_alternative<PlanError>(fitted.outcome)) {
        if (round > 0) fitted.outcome = std::move(refusal);
        return fitted;
      }
      ReplicaPlan& plan = std::get<ReplicaPlan>(fitted.outcome);
      if (round == 0) fitted.bounds = plan.lower_bounds;
      bool fits = true;
      for (PlannedPipeline& pipeline : plan.pipelines) {
        FUSIONLLM_ASSIGN_OR_RETURN(std::optional<PlanError> misfit,
                                   FitStageMemory(workload_, profiles_, recompute, pipeline, request, MemoryReduction::kCumulative,
                                                  BytesInFlightOf(plan.chains, pipeline)));
        if (!misfit.has_value()) continue;
        refusal = *std::move(misfit);
        fits = false;
      }
      if (fits) return fitted;
      fitted.several_misfit = fitted.several_misfit || plan.pipelines.size() > 1;
    }
    fitted.outcome = std::move(refusal);
    return fitted;
  }

  const workload::Workload& workload_;
  const Profiles& profiles_;
  const PlanOptions& options_;
  std::string strategy_;
  Request request_;
};

// A pipeline of so much of a device's memory that it may have limited its depth.
constexpr double kTightShare = 0.6;

bool PipelineMemoryIsTight(const ReplicaOutcome& outcome, const Profiles& profiles) {
  if (const auto* refusal = std::get_if<PlanError>(&outcome)) return refusal->shortfall.what == "memory_bytes";
  for (const PlannedPipeline& pipeline : std::get<ReplicaPlan>(outcome).pipelines) {
    for (const scheduler::PlannedStage& stage : pipeline.stages) {
      const double room = kTightShare * static_cast<double>(profiles.devices[stage.devices[0]].memory_bytes);
      if (static_cast<double>(stage.memory_bytes) > room) return true;
    }
  }
  return false;
}

// Stage s of all pipelines as one.
plan::Stage MergeStages(const std::vector<plan::Plan>& pipelines, size_t s, double step_seconds) {
  const auto busiest = std::max_element(pipelines.begin(), pipelines.end(), [&](const auto& a, const auto& b) {
    return a.stages[s].BusySeconds() < b.stages[s].BusySeconds();
  });
  plan::Stage merged = busiest->stages[s];
  merged.devices.clear();
  for (const plan::Plan& pipeline : pipelines) {
    merged.devices.push_back(pipeline.stages[s].devices[0]);
    merged.memory_bytes = std::max(merged.memory_bytes, pipeline.stages[s].memory_bytes);
    merged.device_memory_bytes = std::min(merged.device_memory_bytes, pipeline.stages[s].device_memory_bytes);
    merged.in_flight = std::max(merged.in_flight, pipeline.stages[s].in_flight);
    if (pipelines.size() > 1) merged.by_replica.push_back(pipeline.ReplicaOf(static_cast<int>(s), 0));
  }
  merged.busy_ratio = step_seconds > 0 ? merged.BusySeconds() / step_seconds : 0;
  return merged;
}

void AddChain(const ReplicaPlan& plan, size_t s, plan::Stage& stage) {
  stage.sync_bytes = plan.chains[s].gradient_bytes;
  // Of few gradients, too: what else is added up or handed on need not go in smaller ones.
  stage.chunk_bytes = std::max(scheduler::replicas::kMinChunkBytes, scheduler::replicas::ChunkBytes(stage.sync_bytes));
  for (const int device : plan.chains[s].devices) {
    const auto replica = std::find_if(plan.pipelines.begin(), plan.pipelines.end(),
                                      [&](const PlannedPipeline& pipeline) { return pipeline.stages[s].devices[0] == device; });
    stage.chain.push_back(static_cast<int>(replica - plan.pipelines.begin()));
  }
}

}  // namespace

plan::Plan PlanOfReplicas(const ReplicaPlan& plan, const PlanContext& context, double cpu_seconds) {
  std::vector<plan::Plan> pipelines;
  std::map<std::string, std::string> arithmetic;  // by specification
  size_t slowest = 0;
  for (size_t d = 0; d < plan.pipelines.size(); ++d) {
    pipelines.push_back(PlanOfPipeline(plan.pipelines[d], context, cpu_seconds));
    for (size_t i = 0; i < pipelines[d].specifications.size(); ++i) {
      arithmetic[pipelines[d].specifications[i]] = pipelines[d].arithmetic[i];
    }
    if (plan.pipelines[d].predicted_step_s > plan.pipelines[slowest].predicted_step_s) slowest = d;
  }
  // How certain the prediction is, the slowest pipeline says: it decides.
  plan::Plan document = pipelines[slowest];
  document.specifications.clear();
  document.arithmetic.clear();
  for (const auto& [specification, of_products] : arithmetic) {
    document.specifications.push_back(specification);
    document.arithmetic.push_back(of_products);
  }
  document.predicted_step_seconds = plan.predicted_step_s;
  document.lower_bound_seconds = plan.lower_bound_s;
  document.gap = plan.gap;
  document.lower_bounds = plan.lower_bounds;
  document.left_out = plan.left_out;
  document.replicas = static_cast<int>(pipelines.size());
  document.sync_seconds = plan.sync_s;
  document.sync_bytes = plan.sync_bytes;
  document.stages.clear();
  document.links.clear();
  document.micro_batches = 0;
  for (const plan::Plan& pipeline : pipelines) {
    document.micro_batches += pipeline.micro_batches;
    document.in_flight = std::max(document.in_flight, pipeline.in_flight);
    if (pipelines.size() > 1) document.micro_batches_by_replica.push_back(pipeline.micro_batches);
    document.links.insert(document.links.end(), pipeline.links.begin(), pipeline.links.end());
  }
  for (size_t s = 0; s < pipelines[0].stages.size(); ++s) {
    document.stages.push_back(MergeStages(pipelines, s, plan.predicted_step_s));
    if (s < plan.chains.size()) AddChain(plan, s, document.stages.back());
  }
  if (context.explain) {
    const std::string certainty = document.explain.empty() ? "" : document.explain.back();
    document.explain = plan.explain;
    if (!certainty.empty()) document.explain.push_back(certainty);
  }
  AddReplicaFigures(plan, context, pipelines, document);
  return document;
}

namespace {

// One pipeline may do what several cannot: gradients of tied parameters are compressed. So where the planner decides, the plan of a job
// that asks for one is weighed as well. nullopt: it is not faster than `planned`.
absl::StatusOr<std::optional<PlannedWorkload>> FasterWithOnePipeline(const workload::Workload& workload, const Profiles& profiles,
                                                                     const PlanOptions& options, const PlannedWorkload& planned) {
  workload::Workload single = workload;
  single.job.spec.strategy.replicas = 1;
  FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload one, PlanWithFixedMicroBatchSize(single, profiles, options));
  auto* const document = std::get_if<plan::Plan>(&one.answer);
  const auto* const other = std::get_if<plan::Plan>(&planned.answer);
  if (document == nullptr) return std::nullopt;
  if (other == nullptr) return one;
  if (document->predicted_step_seconds >= other->predicted_step_seconds) return std::nullopt;
  if (options.explain) {
    document->explain.push_back(absl::StrFormat("with %s, whose tied gradients are exchanged as they are, a step takes %.4g s",
                                                base::Pluralize(other->replicas, "pipeline"), other->predicted_step_seconds));
  }
  // What no plan with one pipeline can beat another one might.
  if (other->lower_bound_seconds < document->lower_bound_seconds) {
    document->lower_bound_seconds = other->lower_bound_seconds;
    document->lower_bounds = other->lower_bounds;
    document->gap = other->lower_bound_seconds > 0 ? document->predicted_step_seconds / other->lower_bound_seconds - 1 : 0;
  }
  return one;
}

absl::StatusOr<PlannedWorkload> PlanAsManyAsAsked(const workload::Workload& workload, const Profiles& profiles,
                                                  const PlanOptions& options) {
  const int64_t begin = runtime::ThreadCpuNanoseconds();
  const job::Recompute requested = workload.job.spec.training.recompute;
  ReplicaPlanner planner(workload, profiles, options);
  PlannedWorkload planned{.recompute = requested == job::Recompute::kFull ? Recompute::kFull : Recompute::kNone};
  FUSIONLLM_ASSIGN_OR_RETURN(ReplicaOutcome outcome, planner.PlanWith(planned.recompute));
  if (requested == job::Recompute::kAuto && PipelineMemoryIsTight(outcome, profiles)) {
    FUSIONLLM_ASSIGN_OR_RETURN(ReplicaOutcome sparing, planner.PlanWith(Recompute::kFull));
    if (IsFasterOutcome(sparing, outcome)) {
      outcome = std::move(sparing);
      planned.recompute = Recompute::kFull;
    }
  }
  const double cpu_seconds = static_cast<double>(runtime::ThreadCpuNanoseconds() - begin) * 1e-9;
  if (auto* refusal = std::get_if<PlanError>(&outcome)) {
    planned.answer = WithSearchTime(*refusal, cpu_seconds);
    planned.outcome = std::move(*refusal);
    return planned;
  }
  const ReplicaPlan& plan = std::get<ReplicaPlan>(outcome);
  planned.answer = PlanOfReplicas(plan, {workload, planner.request(), planned.recompute, options.explain}, cpu_seconds);
  if (plan.pipelines.size() == 1) {
    planned.outcome = plan.pipelines[0];
  } else {
    planned.outcome = PlanError{scheduler::plan_errors::kNotAvailable,
                                absl::StrFormat("the plan has %d pipelines side by side: none of them is the plan", plan.pipelines.size()),
                                {}};
    planned.replicated = std::move(std::get<ReplicaPlan>(outcome));
  }
  return planned;
}

}  // namespace

absl::StatusOr<PlannedWorkload> PlanReplicatedWorkload(const workload::Workload& workload, const Profiles& profiles,
                                                       const PlanOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(PlannedWorkload planned, PlanAsManyAsAsked(workload, profiles, options));
  if (workload.job.spec.strategy.replicas != scheduler::replicas::kAutoReplicas) return planned;
  FUSIONLLM_ASSIGN_OR_RETURN(std::optional<PlannedWorkload> one, FasterWithOnePipeline(workload, profiles, options, planned));
  return one.has_value() ? *std::move(one) : std::move(planned);
}

}  // namespace fusionllm::planning
