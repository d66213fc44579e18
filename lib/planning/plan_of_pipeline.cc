#include "lib/planning/plan_of_pipeline.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/pluralize.h"
#include "lib/estimator/gpu_specs.h"
#include "lib/estimator/graph_cost.h"
#include "lib/opdag/accounting.h"
#include "lib/planning/confidence.h"
#include "lib/planning/plan_figures.h"
#include "lib/scheduler/text_format.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::planning {
namespace {

using scheduler::PlannedPipeline;

static_assert(wire::kMaxPlanStages >= scheduler::kMaxDevices, "a plan may have a stage on each device");

// The scheduler speaks of one message; a document of a step. Latency is met once, since messages follow one another.
void AddDirection(plan::Link link, int messages, int64_t dense_bytes, int64_t wire_bytes, double message_seconds, double latency_s,
                  plan::Plan& document) {
  link.dense_bytes = messages * dense_bytes;
  link.bytes = messages * wire_bytes;
  link.ratio = wire_bytes > 0 ? static_cast<double>(dense_bytes) / static_cast<double>(wire_bytes) : 1;
  link.seconds = messages * std::max(0.0, message_seconds - latency_s) + latency_s;
  document.links.push_back(std::move(link));
}

std::vector<std::string> KindNames(const std::vector<opdag::ActivationKind>& kinds) {
  std::vector<std::string> names;
  for (const opdag::ActivationKind kind : kinds) names.emplace_back(opdag::Name(kind));
  return names;
}

void AddLink(const PlannedPipeline& plan, const scheduler::PlannedLink& link, plan::Plan& document) {
  AddDirection({.src = link.src_device,
                .dst = link.dst_device,
                .src_stage = link.src_stage,
                .dst_stage = link.dst_stage,
                .codec = link.codec,
                .loss_cost = link.loss_cost,
                .reason = link.codec_reason,
                .values = link.value_names,
                .value_kinds = KindNames(link.value_kinds)},
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

// Onto the link that joins the two stages, or one of its own where nothing else does.
void AddTied(const PlannedPipeline& plan, const scheduler::TiedExchange& exchange, plan::Plan& document) {
  document.tied.push_back({.parameter = exchange.parameter,
                           .stages = exchange.stages,
                           .bytes = exchange.bytes,
                           .wire_bytes = *std::max_element(exchange.sent_bytes.begin(), exchange.sent_bytes.end()),
                           .codec = exchange.codec,
                           .loss_cost = exchange.loss_cost,
                           .reason = exchange.codec_reason});
  for (const scheduler::TiedExchange::Message& message : exchange.messages) {
    auto link = std::find_if(document.links.begin(), document.links.end(), [&](const plan::Link& candidate) {
      return candidate.src_stage == message.src_stage && candidate.dst_stage == message.dst_stage;
    });
    if (link == document.links.end()) {
      document.links.push_back({.src = plan.stages[message.src_stage].device_names[0],
                                .dst = plan.stages[message.dst_stage].device_names[0],
                                .src_stage = message.src_stage,
                                .dst_stage = message.dst_stage,
                                .backward = message.src_stage > message.dst_stage,
                                .seconds = message.latency_s});
      link = std::prev(document.links.end());
    }
    link->dense_bytes += exchange.bytes;
    link->bytes += message.bytes;
    link->tied_bytes += message.bytes;
    link->seconds += message.seconds;
    if (link->bytes > 0) link->ratio = static_cast<double>(link->dense_bytes) / static_cast<double>(link->bytes);
  }
}

// What activation checkpointing costs, for --explain.
std::string RecomputeSentence(const PlannedPipeline& plan, const scheduler::PlanRequest& request) {
  int blocks = 1;
  for (const scheduler::OpNode& op : request.ops) blocks = std::max(blocks, op.block + 1);
  double again_s = 0, compute_s = 0;
  for (const scheduler::PlannedStage& stage : plan.stages) {
    const scheduler::Device& device = request.devices[stage.devices[0]];
    compute_s += stage.forward_s + stage.backward_s;
    for (const int id : stage.ops) {
      const scheduler::OpNode& op = request.ops[id];
      if (op.runs_again && !op.placeholder) again_s += op.forward_s[device.cost_class] * device.time_scale;
    }
  }
  return absl::StrFormat(
      "recompute full: activations are kept between the %d blocks of the graph and made again inside, a block at a time, "
      "which takes %.0f%% of the compute of a step",
      blocks, compute_s > 0 ? 100 * again_s / compute_s : 0);
}

// What compute times can be checked by: arithmetic of a step beside the peaks that GPUs with known figures have. For --explain.
std::string ArithmeticSentence(const PlannedPipeline& plan, const PlanContext& context) {
  const estimator::GraphCosts costs = estimator::CostsOf(context.workload.training, /*state_tensors=*/0);
  double flops = 0, peak_flops = 0;
  bool has_peaks = true;
  for (const scheduler::PlannedStage& stage : plan.stages) {
    for (const int op : stage.ops) flops += costs.ops[op].forward_flops + costs.ops[op].backward_flops;
    const int machine = context.request.request.devices[stage.devices[0]].cost_class;
    const estimator::GpuSpec* const gpu = estimator::FindGpu(context.request.specifications[machine]);
    const std::optional<estimator::Arithmetic> arithmetic = estimator::ArithmeticNamed(context.request.arithmetic[machine]);
    has_peaks = has_peaks && gpu != nullptr && arithmetic.has_value();
    if (has_peaks) peak_flops += estimator::PeakFlops(*gpu, *arithmetic);
  }
  flops *= plan.micro_batches;
  const double rate = plan.predicted_step_s > 0 ? flops / plan.predicted_step_s : 0;
  std::string text = absl::StrFormat("arithmetic: a step is %sFLOP, forward and backward without recomputation; over %s that is %sFLOP/s",
                                     opdag::FormatCount(flops), scheduler::DurationText(plan.predicted_step_s), opdag::FormatCount(rate));
  if (!has_peaks || peak_flops <= 0) return text;
  absl::StrAppendFormat(&text, ", %.0f%% of the peak of the %s with a stage (%sFLOP/s together)", 100 * rate / peak_flops,
                        base::Pluralize(static_cast<int64_t>(plan.stages.size()), "device"), opdag::FormatCount(peak_flops));
  return text;
}

}  // namespace

plan::Plan PlanOfPipeline(const PlannedPipeline& plan, const PlanContext& context, double cpu_seconds) {
  plan::Plan document{.strategy = plan.strategy,
                      .predicted_step_seconds = plan.predicted_step_s,
                      .lower_bound_seconds = plan.lower_bound_s,
                      .gap = plan.gap,
                      .micro_batches = plan.micro_batches,
                      .micro_batch_size = context.workload.micro_batch_size,
                      .in_flight = 1,
                      .schedule = std::string(plan.schedule.name()),
                      .recompute = context.recompute == runtime::Recompute::kFull ? "full" : "none",
                      .graph_hash = absl::StrFormat("%016x", context.workload.graph_hash),
                      .left_out = plan.left_out,
                      .search_cpu_seconds = cpu_seconds};
  document.lower_bounds = plan.lower_bounds;
  const double passes = plan.micro_batches;
  for (const scheduler::PlannedStage& stage : plan.stages) {
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
  for (const scheduler::PlannedLink& link : plan.links) AddLink(plan, link, document);
  for (const scheduler::TiedExchange& tied : plan.tied) AddTied(plan, tied, document);
  const Confidence certainty = ConfidenceOf(plan, context.request);
  document.fitted_share = certainty.fitted_share;
  document.specified_share = certainty.specified_share;
  document.fitted_relative_error = certainty.relative_error;
  for (const auto& [specification, arithmetic] : certainty.arithmetic) {
    document.specifications.push_back(specification);
    document.arithmetic.push_back(arithmetic);
  }
  if (context.explain) {
    document.explain = plan.explain;
    if (context.recompute == runtime::Recompute::kFull) document.explain.push_back(RecomputeSentence(plan, context.request.request));
    document.explain.push_back(ArithmeticSentence(plan, context));
    document.explain.push_back(certainty.sentence);
  }
  AddFigures(plan, context, document);
  return document;
}

plan::PlanError WithSearchTime(plan::PlanError refusal, double cpu_seconds) {
  refusal.search_cpu_seconds = cpu_seconds;
  return refusal;
}

plan::PlanResult PlanResultOf(const scheduler::PlanOutcome& outcome, const PlanContext& context, double cpu_seconds) {
  if (const auto* refusal = std::get_if<plan::PlanError>(&outcome)) return WithSearchTime(*refusal, cpu_seconds);
  return PlanOfPipeline(std::get<PlannedPipeline>(outcome), context, cpu_seconds);
}

}  // namespace fusionllm::planning
