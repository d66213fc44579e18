#include "lib/planning/plan_workload.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/planning/certainty.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/stage_memory.h"
#include "lib/runtime/device_pacer.h"
#include "lib/scheduler/strategy.h"

namespace fusionllm::planning {
namespace {

using runtime::Recompute;
using scheduler::Plan;
using scheduler::PlanOutcome;
using scheduler::Refusal;

// The planner's memory model is linear in ops, the runtime's arenas are not: how often a plan that does not fit is sent back with less
// memory to plan on.
constexpr int kMostMemoryRounds = 6;

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
    if (const auto* refusal = std::get_if<Refusal>(&outcome)) {
      return wire::RefusalDocument{
          .reason = refusal->reason,
          .message = refusal->message,
          .shortfall = {.what = refusal->shortfall.what, .needed = refusal->shortfall.needed, .available = refusal->shortfall.available},
          .search_cpu_seconds = cpu_seconds};
    }
    return DocumentOf(std::get<Plan>(outcome), recompute, cpu_seconds);
  }

 private:
  // Plans until the exact memory of every stage fits, and puts it into the plan.
  absl::StatusOr<PlanOutcome> PlanThatFits(scheduler::PlanRequest& request, const compression::Policy& policy) {
    // Codecs are priced by one device for all: a measured one if there is any, which is the slower.
    const auto measured =
        std::find_if(profiles_.devices.begin(), profiles_.devices.end(), [](const auto& device) { return device.specification.empty(); });
    const CompressionPolicy codecs(policy, measured == profiles_.devices.end() ? profiles_.devices.front() : *measured);
    request.codec_policy = &codecs;
    Refusal refusal;
    for (int round = 0; round < kMostMemoryRounds; ++round) {
      FUSIONLLM_ASSIGN_OR_RETURN(PlanOutcome outcome, scheduler::MakePlan(strategy_, request, options_.stop));
      if (std::holds_alternative<Refusal>(outcome)) return round == 0 ? outcome : PlanOutcome(refusal);
      Plan& plan = std::get<Plan>(outcome);
      FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int64_t> exact, StageMemoryOf(workload_, profiles_, plan, recompute_));
      bool fits = true;
      for (scheduler::PlanStage& stage : plan.stages) {
        const int device = stage.devices[0];
        const int64_t room =
            static_cast<int64_t>(static_cast<double>(profiles_.devices[device].memory_bytes) * (1 - request.memory_headroom));
        const int64_t model = stage.memory_bytes;
        stage.memory_bytes = exact[stage.index];
        if (exact[stage.index] <= room) continue;
        fits = false;
        refusal = TooSmall(stage, exact[stage.index], room);
        const int64_t less = std::max(exact[stage.index] - model, exact[stage.index] - room);
        request.devices[device].memory_bytes = std::max<int64_t>(1, request.devices[device].memory_bytes - less);
      }
      if (fits) return outcome;
    }
    return PlanOutcome(refusal);
  }

  static Refusal TooSmall(const scheduler::PlanStage& stage, int64_t needed, int64_t room) {
    return {.reason = "InsufficientMemory",
            .message = absl::StrFormat("stage %d (%s .. %s) needs %.1f MiB, device %s has %.1f MiB to give", stage.index,
                                       stage.op_names.front(), stage.op_names.back(), static_cast<double>(needed) / (1 << 20),
                                       stage.device_names[0], static_cast<double>(room) / (1 << 20)),
            .shortfall = {.what = "memory_bytes", .needed = static_cast<double>(needed), .available = static_cast<double>(room)}};
  }

  wire::PlanDocument DocumentOf(const Plan& plan, Recompute recompute, double cpu_seconds) const {
    wire::PlanDocument document{.strategy = plan.strategy,
                                .predicted_step_seconds = plan.predicted_step_s,
                                .lower_bound_seconds = plan.lower_bound_s,
                                .gap = plan.gap,
                                .micro_batches = plan.micro_batches,
                                .micro_batch_size = workload_.micro_batch_size,
                                .in_flight = 1,
                                .schedule = std::string(scheduler::Name(plan.schedule)),
                                .recompute = recompute == Recompute::kFull ? "full" : "none",
                                .graph_hash = absl::StrFormat("%016x", workload_.graph_hash),
                                .left_out = plan.left_out,
                                .search_cpu_seconds = cpu_seconds};
    const double passes = plan.micro_batches;
    for (const scheduler::PlanStage& stage : plan.stages) {
      document.in_flight = std::max(document.in_flight, stage.in_flight);
      document.stages.push_back({.index = stage.index,
                                 .devices = stage.device_names,
                                 .ops = stage.op_names,
                                 .compute_seconds = passes * (stage.forward_s + stage.backward_s),
                                 .forward_seconds = passes * stage.forward_s,
                                 .backward_seconds = passes * stage.backward_s,
                                 .codec_seconds = passes * stage.codec_s,
                                 .update_seconds = stage.update_s,
                                 .in_flight = stage.in_flight,
                                 .memory_bytes = stage.memory_bytes,
                                 .busy_ratio = stage.busy_ratio});
    }
    for (const scheduler::PlanLink& link : plan.links) AddLink(plan, link, document);
    for (const scheduler::TiedExchange& tied : plan.tied) {
      document.tied.push_back({.parameter = tied.parameter, .stages = tied.stages, .bytes = tied.bytes});
    }
    const Certainty certainty = CertaintyOf(plan, request_);
    document.fitted_share = certainty.fitted_share;
    document.specified_share = certainty.specified_share;
    document.fitted_relative_error = certainty.relative_error;
    document.specifications = certainty.specifications;
    if (options_.explain) {
      document.explain = plan.explain;
      document.explain.push_back(certainty.sentence);
    }
    return document;
  }

  // The scheduler speaks of one message; a document of a step. Latency is met once, since messages follow one another.
  static void AddDirection(wire::PlanLink link, int messages, int64_t dense_bytes, int64_t wire_bytes, double message_seconds,
                           double latency_s, wire::PlanDocument& document) {
    link.dense_bytes = messages * dense_bytes;
    link.bytes = messages * wire_bytes;
    link.ratio = wire_bytes > 0 ? static_cast<double>(dense_bytes) / static_cast<double>(wire_bytes) : 1;
    link.seconds = messages * std::max(0.0, message_seconds - latency_s) + latency_s;
    document.links.push_back(std::move(link));
  }

  static void AddLink(const Plan& plan, const scheduler::PlanLink& link, wire::PlanDocument& document) {
    AddDirection({.src = link.src_device,
                  .dst = link.dst_device,
                  .src_stage = link.src_stage,
                  .dst_stage = link.dst_stage,
                  .codec = link.codec,
                  .loss_cost = link.loss_cost,
                  .reason = link.codec_reason,
                  .values = link.value_names},
                 plan.micro_batches, link.forward_bytes, link.forward_wire_bytes, link.forward_s, link.forward_latency_s, document);
    if (link.backward_bytes == 0) return;
    AddDirection({.src = link.dst_device,
                  .dst = link.src_device,
                  .src_stage = link.dst_stage,
                  .dst_stage = link.src_stage,
                  .backward = true,
                  .codec = link.codec},
                 plan.micro_batches, link.backward_bytes, link.backward_wire_bytes, link.backward_s, link.backward_latency_s, document);
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

absl::StatusOr<wire::PlanAnswer> PlanWorkload(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options) {
  if (profiles.devices.empty()) {
    return wire::RefusalDocument{.reason = "NoExecutors", .message = "there is no device to plan on", .shortfall = {"executors", 1, 0}};
  }
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
  return planner.Document(outcome, chosen, static_cast<double>(runtime::ThreadCpuNanoseconds() - begin) * 1e-9);
}

}  // namespace fusionllm::planning
