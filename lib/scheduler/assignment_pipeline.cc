// Evaluator: what a step of the stages and links is for the simulator.
#include <algorithm>
#include <vector>

#include "lib/scheduler/assignment.h"

namespace fusionllm::scheduler {

double Evaluator::HopSeconds(int src_stage, int dst_stage, int64_t bytes) const {
  const DirectedLink link = problem_.link(stages_[src_stage].device, stages_[dst_stage].device);
  return link.bytes_per_s > 0 ? CrossingSeconds(bytes, link.bytes_per_s, link.latency_s) : 0;
}

double Evaluator::ControlSeconds(int src_stage, int dst_stage, int64_t bytes) const {
  if (problem_.link(stages_[src_stage].device, stages_[dst_stage].device).bytes_per_s > 0) return HopSeconds(src_stage, dst_stage, bytes);
  // No direct link: hop along the pipeline.
  double seconds = 0;
  const int step = dst_stage > src_stage ? 1 : -1;
  for (int s = src_stage; s != dst_stage; s += step) seconds += HopSeconds(s, s + step, bytes);
  return seconds;
}

void Evaluator::BuildPipeline() {
  const PlanRequest& request = problem_.request();
  input_.micro_batches = request.micro_batches;
  input_.schedule = request.schedule == Schedule::kGPipe ? Schedule::kGPipe : Schedule::k1F1B;
  input_.step_overhead_s = request.step_overhead_s;
  input_.stages.clear();
  for (const Stage& stage : stages_) {
    input_.stages.push_back({.forward_s = stage.forward_s + stage.codec_forward_s,
                             .backward_s = stage.backward_s + stage.codec_backward_s,
                             .update_s = stage.update_s,
                             .in_flight = stage.in_flight,
                             .codec_forward_s = stage.codec_forward_s,
                             .codec_backward_s = stage.codec_backward_s});
  }
  input_.wires = 2 * static_cast<int>(link_count_);
  resource_wire_.resize(request.resources.size(), -1);
  for (const int r : touched_resources_) resource_wire_[r] = -1;
  touched_resources_.clear();
  input_.links.resize(link_count_);
  for (size_t l = 0; l < link_count_; ++l) {
    const CutLink& link = links_[l];
    StageLink& out = input_.links[l];
    out.src = link.src;
    out.dst = link.dst;
    out.backward.used = false;
    const int src = stages_[link.src].device, dst = stages_[link.dst].device;
    FillChannel(out.forward, 2 * static_cast<int>(l), src, dst, codecs_[l].forward_wire_bytes);
    if (traffic_[l].backward_bytes > 0) FillChannel(out.backward, 2 * static_cast<int>(l) + 1, dst, src, codecs_[l].backward_wire_bytes);
  }
  BuildExchange();
}

void Evaluator::FillChannel(Channel& channel, int wire, int src_device, int dst_device, int64_t bytes) {
  const DirectedLink link = problem_.link(src_device, dst_device);
  channel.used = true;
  channel.latency_s = link.latency_s;
  channel.bytes = bytes;
  channel.wires.assign(1, {wire, static_cast<double>(bytes) / link.own_bytes_per_s});
  problem_.links().ForEachResource(src_device, dst_device, link, [&](int r) {
    if (resource_wire_[r] < 0) {
      resource_wire_[r] = input_.wires++;
      touched_resources_.push_back(r);
    }
    channel.wires.push_back({resource_wire_[r], static_cast<double>(bytes) / problem_.request().resources[r].bytes_per_s});
  });
}

void Evaluator::BuildExchange() {
  const PlanRequest& request = problem_.request();
  input_.tied.clear();
  for (const TiedExchange& exchange : tied_) {
    for (int from : exchange.stages) {
      for (int to : exchange.stages) {
        if (from != to) input_.tied.push_back({from, to, ControlSeconds(from, to, exchange.bytes)});
      }
    }
  }
  input_.reports.clear();
  input_.decisions.clear();
  double there_s = 0, back_s = 0;  // along the pipeline, for stages without a direct link
  for (int s = 1; request.step_exchange && s < static_cast<int>(stages_.size()); ++s) {
    there_s += HopSeconds(s - 1, s, request.report_bytes);
    back_s += HopSeconds(s, s - 1, request.report_bytes);
    const bool to_first = problem_.link(stages_[s].device, stages_[0].device).bytes_per_s > 0;
    const bool from_first = problem_.link(stages_[0].device, stages_[s].device).bytes_per_s > 0;
    input_.reports.push_back({s, 0, to_first ? HopSeconds(s, 0, request.report_bytes) : back_s});
    input_.decisions.push_back({0, s, from_first ? HopSeconds(0, s, request.report_bytes) : there_s});
  }
}

}  // namespace fusionllm::scheduler
