// Evaluator: the plan of an assignment that has been chosen.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/scheduler/assignment.h"

namespace fusionllm::scheduler {

PlannedPipeline Evaluator::ToPlan(const Assignment& assignment, absl::string_view planner) {
  const PlanRequest& request = problem_.request();
  const Evaluation evaluation = Evaluate(assignment, Effort::kFull);
  std::vector<int> depths, queued;
  for (const Stage& stage : stages_) depths.push_back(stage.in_flight);
  Evaluation again;
  Prepare(assignment, true, again);  // the same stages and links, values listed

  PlannedPipeline plan{.strategy = std::string(planner),
                       .micro_batches = request.micro_batches,
                       .schedule = input_.schedule,
                       .predicted_step_s = evaluation.step_s};
  for (size_t s = 0; s < stages_.size(); ++s) stages_[s].in_flight = depths[s];
  FitQueues();
  for (size_t s = 0; kept_ != nullptr && s < stages_.size(); ++s) stages_[s].in_flight = depths[s];  // whatever queues
  for (size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    PlannedStage out{.index = static_cast<int>(s),
                     .devices = {stage.device},
                     .device_names = {request.devices[stage.device].name},
                     .forward_s = stage.forward_s,
                     .backward_s = stage.backward_s,
                     .codec_s = stage.codec_forward_s + stage.codec_backward_s,
                     .update_s = stage.update_s,
                     .in_flight = stage.in_flight,
                     .memory_bytes = MemoryOf(stage.memory, stage.in_flight) + stage.queued_bytes};
    for (int p = stage.begin; p < stage.end; ++p) out.ops.push_back(problem_.op_at(p));
    std::sort(out.ops.begin(), out.ops.end());
    for (int op : out.ops) out.op_names.push_back(request.ops[op].name);
    const double busy_s = request.micro_batches * (out.forward_s + out.backward_s + out.codec_s) + out.update_s;
    out.busy_ratio = evaluation.step_s > 0 ? busy_s / evaluation.step_s : 0;
    plan.stages.push_back(std::move(out));
  }
  for (size_t l = 0; l < link_count_; ++l) {
    const CutLink& link = links_[l];
    PlannedLink out{.src_stage = link.src,
                    .dst_stage = link.dst,
                    .src_device = request.devices[stages_[link.src].device].name,
                    .dst_device = request.devices[stages_[link.dst].device].name,
                    .forward_bytes = traffic_[l].forward_bytes + traffic_[l].forward_lossless_bytes,
                    .backward_bytes = traffic_[l].backward_bytes,
                    .forward_wire_bytes = codecs_[l].forward_wire_bytes,
                    .backward_wire_bytes = codecs_[l].backward_wire_bytes,
                    .codec = codecs_[l].codec,
                    .ratio = codecs_[l].ratio,
                    .loss_cost = codecs_[l].loss_cost,
                    .producer_forward_s = codecs_[l].producer_forward_s,
                    .consumer_forward_s = codecs_[l].consumer_forward_s,
                    .producer_backward_s = codecs_[l].producer_backward_s,
                    .consumer_backward_s = codecs_[l].consumer_backward_s,
                    .codec_reason = codecs_[l].reason == nullptr ? "" : *codecs_[l].reason};
    for (int v : link.values) {
      out.values.push_back(problem_.values()[v].value);
      out.value_names.push_back(request.values[out.values.back()].name);
      out.value_kinds.push_back(request.values[out.values.back()].kind);
    }
    const DirectedLink there = problem_.link(stages_[link.src].device, stages_[link.dst].device);
    const DirectedLink back = problem_.link(stages_[link.dst].device, stages_[link.src].device);
    out.forward_s = CrossingSeconds(out.forward_wire_bytes, there.bytes_per_s, there.latency_s);
    out.forward_latency_s = there.latency_s;
    out.forward_share_bytes_per_s = traffic_[l].forward_bytes_per_s;
    if (out.backward_bytes > 0) {
      out.backward_s = CrossingSeconds(out.backward_wire_bytes, back.bytes_per_s, back.latency_s);
      out.backward_latency_s = back.latency_s;
    }
    plan.links.push_back(std::move(out));
  }
  std::sort(plan.links.begin(), plan.links.end(), [](const PlannedLink& a, const PlannedLink& b) {
    return std::pair(a.src_stage, a.dst_stage) < std::pair(b.src_stage, b.dst_stage);
  });
  AddExchanges(plan);
  plan.pipeline = DescribePipeline();
  return plan;
}

void Evaluator::AddExchanges(PlannedPipeline& plan) {
  plan.tied = tied_;
  for (size_t e = 0; e < plan.tied.size(); ++e) {
    TiedExchange& exchange = plan.tied[e];
    for (size_t i = 0; i < exchange.stages.size(); ++i) {
      const int from = exchange.stages[i];
      for (const int to : exchange.stages) {
        if (from == to) continue;
        const int64_t bytes = exchange.sent_bytes[i];
        const DirectedLink link = problem_.link(stages_[from].device, stages_[to].device);
        const double seconds = link.bytes_per_s > 0 ? static_cast<double>(bytes) / link.bytes_per_s : 0;
        exchange.messages.push_back({from, to, bytes, seconds, link.latency_s});
      }
    }
    exchange.codec_reason = WhyTiedCodec(e);
  }
}

StepModel Evaluator::DescribePipeline() {
  const PlanRequest& request = problem_.request();
  StepModel pipeline;
  // What a codec was chosen for: between fast links there may be larger messages, which one would not send over a slow one.
  int64_t forward_bytes = 0, backward_bytes = 0;
  double forward_s = -1, backward_s = -1;
  const auto take_slowest = [](const Channel& channel, double& max_s, int64_t& bytes) {
    for (const LinkOccupancy& use : channel.shared_links) {
      if (use.hold_s <= max_s) continue;
      max_s = use.hold_s;
      bytes = channel.bytes;
    }
  };
  for (const StageLink& link : input_.links) {
    if (link.dst != link.src + 1 || !link.backward.used) continue;
    take_slowest(link.forward, forward_s, forward_bytes);
    take_slowest(link.backward, backward_s, backward_bytes);
  }
  for (size_t s = 0; s < stages_.size(); ++s) {
    const Device& device = request.devices[stages_[s].device];
    StageTiming& timing = input_.stages[s];
    timing.in_flight = stages_[s].in_flight;
    timing.max_kept = stages_[s].max_in_flight;
    timing.weights_s = 0;
    for (int p = stages_[s].begin; p < stages_[s].end; ++p) {
      const std::vector<double>& weights_s = request.ops[problem_.op_at(p)].weights_s;
      if (!weights_s.empty()) timing.weights_s += weights_s[device.cost_class] * device.time_scale;
    }
  }
  pipeline.input = input_;
  for (StageLink& link : pipeline.input.links) {
    if (!link.backward.used) link.backward = {};  // of an earlier candidate
  }
  const int first = stages_.front().device, last = stages_.back().device;
  if (forward_bytes > 0 && problem_.Connected(first, last)) {
    StageLink& around = pipeline.wrap_around;
    const int shared_link = input_.shared_links;
    input_.shared_links += 2;
    FillChannel(around.forward, shared_link, last, first, forward_bytes);
    FillChannel(around.backward, shared_link + 1, first, last, backward_bytes);
  }
  pipeline.shared_links.resize(input_.shared_links);
  for (const int r : touched_resources_) pipeline.shared_links[resource_link_[r]] = request.resources[r].name;
  return pipeline;
}

}  // namespace fusionllm::scheduler
