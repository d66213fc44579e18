#include "lib/scheduler/pipeline_model.h"

#include <algorithm>
#include <cmath>

namespace fusionllm::scheduler {
namespace {

constexpr int32_t kForwardDone = 0;
constexpr int32_t kBackwardDone = 1;
constexpr int32_t kForwardArrives = 2;
constexpr int32_t kBackwardArrives = 3;
constexpr int32_t kWeightsDone = 4;

// std::push_heap keeps the largest first; "later" as "less" puts the earliest event there.
constexpr auto kLater = [](const auto& a, const auto& b) { return a.at_s != b.at_s ? a.at_s > b.at_s : a.order > b.order; };

}  // namespace

void PipelineSimulator::Push(double at_s, int32_t kind, int32_t id) {
  heap_.push_back({at_s, order_++, kind, id});
  std::push_heap(heap_.begin(), heap_.end(), kLater);
}

PipelineSimulator::Event PipelineSimulator::Pop() {
  std::pop_heap(heap_.begin(), heap_.end(), kLater);
  const Event event = heap_.back();
  heap_.pop_back();
  return event;
}

void PipelineSimulator::Index(const PipelineInput& input) {
  const size_t stages = input.stages.size();
  in_offset_.assign(stages + 1, 0);
  out_offset_.assign(stages + 1, 0);
  for (const StageLink& link : input.links) {
    ++in_offset_[link.dst + 1];
    ++out_offset_[link.src + 1];
  }
  for (size_t s = 0; s < stages; ++s) {
    in_offset_[s + 1] += in_offset_[s];
    out_offset_[s + 1] += out_offset_[s];
  }
  in_links_.assign(input.links.size(), 0);
  out_links_.assign(input.links.size(), 0);
  forward_arrived_.assign(input.links.size(), 0);
  backward_arrived_.assign(input.links.size(), 0);
  // Fill backwards from each end so that no second offset array is needed; the order within a stage does not matter for what arrives,
  // and out-links are sent nearest first, below.
  std::vector<int>& in_next = forward_arrived_;  // borrowed as cursors, zeroed again below
  std::vector<int>& out_next = backward_arrived_;
  if (in_next.size() < stages) in_next.resize(stages, 0);
  if (out_next.size() < stages) out_next.resize(stages, 0);
  for (size_t l = 0; l < input.links.size(); ++l) {
    in_links_[in_offset_[input.links[l].dst] + in_next[input.links[l].dst]++] = static_cast<int>(l);
    out_links_[out_offset_[input.links[l].src] + out_next[input.links[l].src]++] = static_cast<int>(l);
  }
  forward_arrived_.assign(input.links.size(), 0);
  backward_arrived_.assign(input.links.size(), 0);
}

bool PipelineSimulator::InputsArrived(const PipelineInput& input, int stage, int micro_batch, bool forward) const {
  if (forward) {
    for (int i = in_offset_[stage]; i < in_offset_[stage + 1]; ++i) {
      const int link = in_links_[i];
      if (input.links[link].forward.used && forward_arrived_[link] <= micro_batch) return false;
    }
    return true;
  }
  for (int i = out_offset_[stage]; i < out_offset_[stage + 1]; ++i) {
    const int link = out_links_[i];
    if (input.links[link].backward.used && backward_arrived_[link] <= micro_batch) return false;
  }
  return true;
}

void PipelineSimulator::TryStart(const PipelineInput& input, int stage, double now_s) {
  StageState& state = stages_[stage];
  if (state.busy) return;
  const StageTiming& timing = input.stages[stage];
  const bool gpipe = input.schedule == Schedule::kGPipe;
  const bool may_go_back = state.backwards < state.forwards_done && (!gpipe || state.forwards_done == input.micro_batches) &&
                           InputsArrived(input, stage, state.backwards, false);
  const bool fits = !input.split_backward || timing.most_kept == 0 || state.forwards - state.weights < timing.most_kept;
  const bool may_go_on = state.forwards < input.micro_batches && fits && (gpipe || state.forwards - state.backwards < timing.in_flight) &&
                         InputsArrived(input, stage, state.forwards, true);
  if (may_go_back && !(may_go_on && state.last_went_back)) {
    state.last_went_back = true;
    const double weights_s = input.split_backward ? timing.weights_s : 0;
    Begin(stage, TimelineSpan::Kind::kBackward, state.backwards++, now_s, timing.backward_s - weights_s);
    Push(state.end_s, kBackwardDone, stage);
    return;
  }
  if (may_go_on) {
    state.last_went_back = false;
    if (state.forwards == 0) state.first_s = now_s;
    Begin(stage, TimelineSpan::Kind::kForward, state.forwards++, now_s, timing.forward_s);
    Push(state.end_s, kForwardDone, stage);
    return;
  }
  if (input.split_backward && state.weights < state.backwards_done) {
    Begin(stage, TimelineSpan::Kind::kWeights, state.weights++, now_s, timing.weights_s);
    Push(state.end_s, kWeightsDone, stage);
  }
}

void PipelineSimulator::Begin(int stage, TimelineSpan::Kind kind, int micro_batch, double now_s, double seconds) {
  StageState& state = stages_[stage];
  state.busy = true;
  state.end_s = now_s + seconds;
  if (timeline_ != nullptr) timeline_->push_back({kind, stage, micro_batch, now_s, state.end_s});
}

void PipelineSimulator::Send(const PipelineInput& input, int link, bool forward, double now_s) {
  const Channel& channel = forward ? input.links[link].forward : input.links[link].backward;
  if (!channel.used) return;
  double start_s = now_s;
  for (const WireUse& use : channel.wires) start_s = std::max(start_s, wire_free_s_[use.wire]);
  double carried_s = start_s;
  for (const WireUse& use : channel.wires) {
    wire_free_s_[use.wire] = start_s + use.hold_s;
    carried_s = std::max(carried_s, start_s + use.hold_s);
  }
  if (timeline_ != nullptr) {
    int& sent = forward ? forward_sent_[link] : backward_sent_[link];
    timeline_->push_back({forward ? TimelineSpan::Kind::kForwardMessage : TimelineSpan::Kind::kBackwardMessage, link, sent++, start_s,
                          carried_s + channel.latency_s});
  }
  Push(carried_s + channel.latency_s, forward ? kForwardArrives : kBackwardArrives, link);
}

double PipelineSimulator::FinishStep(const PipelineInput& input) {
  ready_s_.resize(input.stages.size());
  for (size_t s = 0; s < input.stages.size(); ++s) ready_s_[s] = stages_[s].end_s;
  const auto deliver = [this](const std::vector<EndMessage>& messages) {
    heard_s_ = ready_s_;
    for (const EndMessage& m : messages) heard_s_[m.to] = std::max(heard_s_[m.to], ready_s_[m.from] + m.seconds);
    ready_s_.swap(heard_s_);
  };
  deliver(input.tied);
  deliver(input.reports);
  deliver(input.decisions);
  double period_s = 0;
  for (size_t s = 0; s < input.stages.size(); ++s) {
    period_s = std::max(period_s, ready_s_[s] + input.stages[s].update_s - stages_[s].first_s);
  }
  return period_s + input.step_overhead_s;
}

PipelineResult PipelineSimulator::Run(const PipelineInput& input, std::vector<TimelineSpan>* timeline) {
  timeline_ = timeline;
  heap_.clear();
  order_ = 0;
  stages_.assign(input.stages.size(), StageState{});
  wire_free_s_.assign(input.wires, 0);
  Index(input);
  if (timeline_ != nullptr) {
    timeline_->clear();
    forward_sent_.assign(input.links.size(), 0);
    backward_sent_.assign(input.links.size(), 0);
  }
  for (size_t s = 0; s < input.stages.size(); ++s) TryStart(input, static_cast<int>(s), 0);
  while (!heap_.empty()) {
    const Event event = Pop();
    switch (event.kind) {
      case kForwardDone:
        stages_[event.id].busy = false;
        ++stages_[event.id].forwards_done;
        for (int i = out_offset_[event.id]; i < out_offset_[event.id + 1]; ++i) Send(input, out_links_[i], true, event.at_s);
        TryStart(input, event.id, event.at_s);
        break;
      case kBackwardDone:
        stages_[event.id].busy = false;
        ++stages_[event.id].backwards_done;
        for (int i = in_offset_[event.id]; i < in_offset_[event.id + 1]; ++i) Send(input, in_links_[i], false, event.at_s);
        TryStart(input, event.id, event.at_s);
        break;
      case kWeightsDone:
        stages_[event.id].busy = false;
        TryStart(input, event.id, event.at_s);
        break;
      case kForwardArrives:
        ++forward_arrived_[event.id];
        TryStart(input, input.links[event.id].dst, event.at_s);
        break;
      default:
        ++backward_arrived_[event.id];
        TryStart(input, input.links[event.id].src, event.at_s);
    }
  }
  PipelineResult result;
  for (const StageState& state : stages_) result.compute_end_s = std::max(result.compute_end_s, state.end_s);
  result.step_s = FinishStep(input);
  return result;
}

double FillPlusBottleneck(double fill_s, double bottleneck_s, int micro_batches) { return fill_s + (micro_batches - 1) * bottleneck_s; }

int WarmUpDepth(int stage, int stages, double crossing_s, double stage_s, int micro_batches) {
  const double stretch = stage_s > 0 ? 1 + 2 * crossing_s / stage_s : micro_batches;
  const double depth = std::ceil((stages - stage) * stretch - 1e-9) + (crossing_s > 0 ? 1 : 0);
  return static_cast<int>(std::clamp(depth, 1.0, static_cast<double>(micro_batches)));
}

}  // namespace fusionllm::scheduler
