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

void Evaluator::BuildPipeline(Evaluation& evaluation) {
  const PlanRequest& request = problem_.request();
  input_.micro_batches = request.micro_batches;
  input_.schedule = request.schedule;
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
  input_.shared_links = 2 * static_cast<int>(link_count_);
  resource_link_.resize(request.resources.size(), -1);
  for (const int r : touched_resources_) resource_link_[r] = -1;
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
  ChooseTiedCodecs(evaluation);
  BuildExchange();
}

void Evaluator::FillChannel(Channel& channel, int shared_link, int src_device, int dst_device, int64_t bytes) {
  const DirectedLink link = problem_.link(src_device, dst_device);
  channel.used = true;
  channel.latency_s = link.latency_s;
  channel.bytes = bytes;
  channel.shared_links.assign(1, {shared_link, static_cast<double>(bytes) / link.own_bytes_per_s});
  problem_.links().ForEachResource(src_device, dst_device, link, [&](int r) {
    if (resource_link_[r] < 0) {
      resource_link_[r] = input_.shared_links++;
      touched_resources_.push_back(r);
    }
    channel.shared_links.push_back({resource_link_[r], static_cast<double>(bytes) / problem_.request().resources[r].bytes_per_s});
  });
}

void Evaluator::BuildExchange() {
  const PlanRequest& request = problem_.request();
  input_.tied.clear();
  for (size_t e = 0; e < tied_.size(); ++e) {
    for (size_t sender = 0; sender < tied_[e].stages.size(); ++sender) {
      for (const int to : tied_[e].stages) {
        if (tied_[e].stages[sender] != to) AddTied(static_cast<int>(e), sender, to);
      }
    }
  }
  CutTied();
  input_.reports.clear();
  input_.decisions.clear();
  const int64_t decision_bytes = request.decision_bytes > 0 ? request.decision_bytes : request.report_bytes;
  double there_s = 0, back_s = 0;  // along the pipeline, for stages without a direct link
  for (int s = 1; request.coordinates_steps && s < static_cast<int>(stages_.size()); ++s) {
    there_s += HopSeconds(s - 1, s, decision_bytes);
    back_s += HopSeconds(s, s - 1, request.report_bytes);
    const DirectedLink to_first = problem_.link(stages_[s].device, stages_[0].device);
    const DirectedLink from_first = problem_.link(stages_[0].device, stages_[s].device);
    const double report_s = to_first.bytes_per_s > 0 ? HopSeconds(s, 0, request.report_bytes) : back_s;
    const double decision_s = from_first.bytes_per_s > 0 ? HopSeconds(0, s, decision_bytes) : there_s;
    input_.reports.push_back({s, 0, report_s, to_first.bytes_per_s > 0 ? to_first.latency_s : report_s, request.report_bytes});
    input_.decisions.push_back({0, s, decision_s, from_first.bytes_per_s > 0 ? from_first.latency_s : decision_s, decision_bytes});
  }
}

// The shared link of the messages that one stage sends another.
int Evaluator::SharedLinkBetween(int from, int to) {
  for (const int l : links_out_[std::min(from, to)]) {
    if (links_[l].dst == std::max(from, to)) return 2 * l + (from < to ? 0 : 1);
  }
  for (const TiedMessage& other : input_.tied) {
    if (other.from == from && other.to == to && !other.channel.shared_links.empty()) return other.channel.shared_links.front().shared_link;
  }
  return input_.shared_links++;
}

void Evaluator::AddTied(int exchange, size_t sender, int to) {
  const int from = tied_[exchange].stages[sender];
  const int64_t bytes = tied_[exchange].sent_bytes[sender];
  const int src = stages_[from].device, dst = stages_[to].device;
  const bool reports = to == tied_[exchange].stages.front();
  TiedMessage message{.from = from, .to = to, .exchange = exchange, .before_report = reports};
  if (problem_.link(src, dst).bytes_per_s > 0) {
    FillChannel(message.channel, SharedLinkBetween(from, to), src, dst, bytes);
  } else {
    message.channel = {.used = true, .latency_s = ControlSeconds(from, to, bytes), .bytes = bytes};
  }
  input_.tied.push_back(std::move(message));
}

// A tied message takes turns on its shared links with others' piece by piece. No others on them: one will do.
void Evaluator::CutTied() {
  constexpr int kMaxPieces = 16;
  constexpr int64_t kMinPieceBytes = 64 << 10;
  if (input_.tied.empty()) return;
  link_user_.assign(input_.shared_links, kNoSender);
  const auto use = [&](const Channel& channel, int from, int to) {
    const int pair = from * static_cast<int>(stages_.size()) + to;
    for (const LinkOccupancy& use : channel.shared_links) {
      int& user = link_user_[use.shared_link];
      user = user == kNoSender || user == pair ? pair : kManySenders;
    }
  };
  for (const StageLink& link : input_.links) {
    if (link.forward.used) use(link.forward, link.src, link.dst);
    if (link.backward.used) use(link.backward, link.dst, link.src);
  }
  for (const TiedMessage& message : input_.tied) use(message.channel, message.from, message.to);
  for (TiedMessage& message : input_.tied) {
    const bool alone = std::none_of(message.channel.shared_links.begin(), message.channel.shared_links.end(),
                                    [&](const LinkOccupancy& use) { return link_user_[use.shared_link] == kManySenders; });
    message.pieces = alone ? 1 : static_cast<int>(std::clamp<int64_t>(message.channel.bytes / kMinPieceBytes, 1, kMaxPieces));
  }
}

}  // namespace fusionllm::scheduler
