#include "lib/scheduler/assignment.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler {
namespace {

// Times that differ by less are the same plan to anybody but the last bits.
constexpr double kSameTime = 1e-9;
// A shallower pipeline that loses no more than this wins: it needs less memory.
constexpr double kDepthTolerance = 1e-3;
constexpr int64_t kValuesOfAnEvent = 4;  // of the graph, that take as long as an event of the simulator
constexpr double kSurely = 1 + 1e-8;     // sums in another order differ by far less

// The most micro-batches in flight with which a stage fits: MemoryOf is linear from two on.
int64_t DeepestThatFits(const StageMemory& memory, int64_t usable_bytes, int most) {
  for (int depth = 0; depth < 3; ++depth) {
    if (MemoryOf(memory, depth) > usable_bytes) return depth - 1;
  }
  const int64_t slope = MemoryOf(memory, 3) - MemoryOf(memory, 2);
  return slope > 0 ? 2 + (usable_bytes - MemoryOf(memory, 2)) / slope : most;
}

}  // namespace

double CrossingSeconds(int64_t bytes, double bytes_per_s, double latency_s) { return static_cast<double>(bytes) / bytes_per_s + latency_s; }

int64_t MemoryOf(const StageMemory& memory, int in_flight) {
  // A micro-batch that the stage before has under way takes stash_bytes here, or waits as a message; only where that is more does it
  // matter.
  const int64_t waiting = std::max<int64_t>(0, memory.incoming_bytes - memory.stash_bytes);
  return memory.static_bytes + memory.stash_bytes * in_flight + memory.workspace_bytes + memory.buffer_bytes +
         memory.outgoing_bytes * std::max(0, in_flight - 2) + waiting * std::max(0, in_flight - 1);
}

bool Better(const Evaluation& a, size_t stages_a, const Evaluation& b, size_t stages_b) {
  if (a.feasible() != b.feasible()) return a.feasible();
  if (std::abs(a.cost_s() - b.cost_s()) > kSameTime * b.cost_s()) return a.cost_s() < b.cost_s();
  if (a.loss_cost != b.loss_cost) return a.loss_cost < b.loss_cost;
  return stages_a < stages_b;
}

int Evaluator::LinkBetween(int src, int dst) {
  const auto joins = [&](size_t l) { return l < link_count_ && links_[l].src == src && links_[l].dst == dst; };
  if (const int newest = newest_link_to_[dst]; newest >= 0 && joins(newest)) return newest;
  for (int l : links_out_[src]) {
    if (joins(l)) return newest_link_to_[dst] = l;
  }
  if (link_count_ == links_.size()) {
    links_.emplace_back();
    traffic_.emplace_back();
    codecs_.emplace_back();
  }
  const int l = static_cast<int>(link_count_++);
  links_[l].src = src;
  links_[l].dst = dst;
  links_[l].values.clear();
  std::vector<LossyTensor> tensors = std::move(traffic_[l].lossy_tensors);  // keeps its memory
  tensors.clear();
  traffic_[l] = LinkTraffic{.lossy_tensors = std::move(tensors)};
  links_out_[src].push_back(l);
  newest_link_to_[dst] = l;
  return l;
}

void Evaluator::AddKept(const ChainValue& value) {
  int last = -1;
  for (int keeper : value.kept_by) {
    if (stage_of_[keeper] == last) continue;
    last = stage_of_[keeper];
    stages_[last].memory.stash_bytes += value.bytes;
  }
}

// A stage keeps what it cannot make again or need not; the rest is there while the backward part of its block runs.
void Evaluator::AddReadAgain(const ChainValue& value) {
  const int src = stage_of_[value.producer];
  int last = -1;
  for (const int reader : value.read_again_by) {
    if (stage_of_[reader] == last) continue;
    last = stage_of_[reader];
    Stage& stage = stages_[last];
    if (last != src || value.kept_between_blocks) {
      stage.memory.stash_bytes += value.bytes;
      continue;
    }
    const auto keeper = std::lower_bound(value.kept_by.begin(), value.kept_by.end(), stage.begin);
    if (keeper == value.kept_by.end() || *keeper >= stage.end) continue;
    const size_t block = static_cast<size_t>(src) * problem_.blocks() + value.block;
    if (block_bytes_[block] == 0) touched_blocks_.push_back(block);
    block_bytes_[block] += value.bytes;
    stage.largest_block = std::max(stage.largest_block, block_bytes_[block]);
  }
}

void Evaluator::AddValue(const ChainValue& value, int chain_value, bool list_values) {
  if (problem_.request().recompute) {
    AddReadAgain(value);
  } else {
    AddKept(value);
  }
  const int src = stage_of_[value.producer];
  if (stage_of_[value.last_consumer] == src) return;
  int last = src;
  for (int consumer : value.consumers) {
    const int dst = stage_of_[consumer];
    if (dst == last) continue;
    last = dst;
    const int l = LinkBetween(src, dst);
    LinkTraffic& traffic = traffic_[l];
    if (value.differentiable && !value.lossless_only) {
      traffic.lossy_tensors.push_back({.bytes = value.bytes, .bytes_of_element = value.bytes_of_element, .kind = value.kind});
      traffic.forward_bytes += value.bytes;
    } else {
      traffic.forward_lossless_bytes += value.wire_bytes;
    }
    if (value.differentiable) traffic.backward_bytes += value.bytes;
    if (list_values) links_[l].values.push_back(chain_value);
  }
}

Evaluation::Feasibility Evaluator::CheckLinks(Evaluation& evaluation) const {
  for (size_t l = 0; l < link_count_; ++l) {
    const CutLink& link = links_[l];
    const int src = stages_[link.src].device, dst = stages_[link.dst].device;
    const bool there = problem_.link(src, dst).bytes_per_s > 0;
    const bool back = traffic_[l].backward_bytes == 0 || problem_.link(dst, src).bytes_per_s > 0;
    if (there && back) continue;
    evaluation.stage = link.src;
    evaluation.other_stage = link.dst;
    return Evaluation::Feasibility::kDisconnected;
  }
  return Evaluation::Feasibility::kFeasible;
}

// A pair's share of each shared resource is in proportion to the bytes it moves there.
void Evaluator::ShareRates() {
  const PlanRequest& request = problem_.request();
  const DirectedLinks& links = problem_.links();
  const auto for_each_direction = [&](auto&& visit) {
    for (size_t l = 0; l < link_count_; ++l) {
      LinkTraffic& t = traffic_[l];
      const int src = stages_[links_[l].src].device, dst = stages_[links_[l].dst].device;
      visit(src, dst, t.forward_bytes + t.forward_lossless_bytes, t.forward_bytes_per_s, t.forward_latency_s);
      if (t.backward_bytes > 0) visit(dst, src, t.backward_bytes, t.backward_bytes_per_s, t.backward_latency_s);
    }
  };
  // There may be far more resources than this assignment uses: only those are set to nought.
  resource_bytes_.resize(request.resources.size());
  for_each_direction([&](int src, int dst, int64_t, double&, double&) {
    links.ForEachResource(src, dst, links.Between(src, dst), [&](int r) { resource_bytes_[r] = 0; });
  });
  for_each_direction([&](int src, int dst, int64_t bytes, double&, double&) {
    links.ForEachResource(src, dst, links.Between(src, dst), [&](int r) { resource_bytes_[r] += static_cast<double>(bytes); });
  });
  for_each_direction([&](int src, int dst, int64_t bytes, double& rate, double& latency_s) {
    const DirectedLink link = links.Between(src, dst);
    rate = link.bytes_per_s;
    latency_s = link.latency_s;
    links.ForEachResource(src, dst, link, [&](int r) {
      if (bytes > 0) rate = std::min(rate, request.resources[r].bytes_per_s * static_cast<double>(bytes) / resource_bytes_[r]);
    });
  });
}

void Evaluator::ChooseCodecs(Evaluation& evaluation) {
  double target_s = 0;
  for (const Stage& stage : stages_) target_s = std::max(target_s, stage.forward_s + stage.backward_s);
  for (size_t l = 0; l < link_count_; ++l) {
    // A one-way link has no gradient to wait for: any positive rate will do for the policy.
    if (traffic_[l].backward_bytes == 0) traffic_[l].backward_bytes_per_s = traffic_[l].forward_bytes_per_s;
  }
  if (kept_ == nullptr) {
    problem_.codec_policy().Choose({traffic_.data(), link_count_}, target_s, {codecs_.data(), link_count_});
    KeepWithinEgress(target_s);
  }
  for (size_t l = 0; kept_ != nullptr && l < link_count_; ++l) {
    for (const PlannedLink& kept : kept_->links) {
      if (kept.src_stage == links_[l].src && kept.dst_stage == links_[l].dst) codecs_[l] = kept.Codec();
    }
  }
  for (size_t l = 0; l < link_count_; ++l) {
    const LinkCodec& codec = codecs_[l];
    evaluation.loss_cost += codec.loss_cost;
    Stage& src = stages_[links_[l].src];
    Stage& dst = stages_[links_[l].dst];
    const double src_scale = problem_.request().devices[src.device].time_scale,
                 dst_scale = problem_.request().devices[dst.device].time_scale;
    src.codec_forward_s += codec.producer_forward_s * src_scale;
    src.codec_backward_s += codec.producer_backward_s * src_scale;
    dst.codec_forward_s += codec.consumer_forward_s * dst_scale;
    dst.codec_backward_s += codec.consumer_backward_s * dst_scale;
    // One message on its way and one waiting, each direction; what is decoded lies in the stash or the scratch.
    const int64_t buffers = 2 * (codec.forward_wire_bytes + codec.backward_wire_bytes);
    const int64_t larger = std::max(codec.forward_wire_bytes, codec.backward_wire_bytes);
    src.memory.buffer_bytes += buffers;
    dst.memory.buffer_bytes += buffers;
    src.memory.outgoing_bytes += larger;
    if (traffic_[l].backward_bytes > 0) {
      dst.memory.incoming_bytes += larger;
    } else {  // labels come for as many micro-batches as there are: they are small, so no stage is made shallower for their sake
      dst.memory.buffer_bytes += larger * std::max(0, problem_.request().micro_batches - 2);
    }
  }
}

bool Evaluator::LimitDepths(Evaluation& evaluation) {
  const PlanRequest& request = problem_.request();
  const int most = request.schedule.MaxInFlight(request.micro_batches, request.max_in_flight);
  for (size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    const int64_t fits = DeepestThatFits(stage.memory, problem_.UsableMemory(stage.device), most);
    stage.max_in_flight = static_cast<int>(std::clamp<int64_t>(fits, 0, most));
    const int least = kept_ != nullptr ? kept_->stages[s].in_flight : request.schedule.MinInFlight(request.micro_batches);
    if (stage.max_in_flight < least || fits < 0) {
      evaluation.feasibility = Evaluation::Feasibility::kTooMuchMemory;
      evaluation.stage = static_cast<int>(s);
      evaluation.needed_bytes = MemoryOf(stage.memory, least);
      return false;
    }
  }
  return true;
}

// Depth by Little's law: the micro-batches that start while one goes down the pipeline and its gradient comes back, which is
// (stages - s) (1 + 2 (x + a) / C) on equal stages (WarmUpDepth in pipeline_model_test.cc). `extra` deepens it, since stages drift apart on
// uneven links; a negative one asks for the textbook depth.
void Evaluator::SetDepths(int extra) {
  const int count = static_cast<int>(stages_.size());
  double period_s = 0;
  for (const Stage& stage : stages_) {
    period_s = std::max(period_s, stage.forward_s + stage.backward_s + stage.codec_forward_s + stage.codec_backward_s);
  }
  double round_trip_s = 0;
  for (int s = count - 1; s >= 0; --s) {
    Stage& stage = stages_[s];
    double crossing_s = 0;
    for (int l : links_out_[s]) {
      const LinkTraffic& traffic = traffic_[l];
      if (traffic.backward_bytes == 0) continue;
      const double there_s = CrossingSeconds(codecs_[l].forward_wire_bytes, traffic.forward_bytes_per_s, traffic.forward_latency_s);
      const double back_s = CrossingSeconds(codecs_[l].backward_wire_bytes, traffic.backward_bytes_per_s, traffic.backward_latency_s);
      crossing_s = std::max(crossing_s, there_s + back_s);
    }
    round_trip_s += stage.forward_s + stage.backward_s + crossing_s;
    double depth = count - s;
    if (extra >= 0) depth = period_s > 0 ? std::max(depth, std::ceil(round_trip_s / period_s)) + extra : stage.max_in_flight;
    stage.in_flight = static_cast<int>(std::clamp(depth, 1.0, static_cast<double>(stage.max_in_flight)));
  }
}

// Activations that arrived early wait in the receiver's memory, and gradients for a sender that is behind: as many as the sender may be
// ahead. Makes senders shallower where they would not fit.
void Evaluator::FitQueues() {
  for (Stage& stage : stages_) stage.queued_bytes = 0;
  for (int s = static_cast<int>(stages_.size()) - 1; s >= 0; --s) {
    Stage& src = stages_[s];
    for (int pass = 0; pass < 2; ++pass) {  // first the limit of every link, then what is really queued
      for (int l : links_out_[s]) {
        if (traffic_[l].backward_bytes == 0) continue;  // counted whole: ChooseCodecs
        Stage& dst = stages_[links_[l].dst];
        const int64_t bytes = std::max(codecs_[l].forward_wire_bytes, codecs_[l].backward_wire_bytes);
        const int64_t room = problem_.UsableMemory(dst.device) - MemoryOf(dst.memory, dst.in_flight) - dst.queued_bytes;
        if (pass == 0 && bytes > 0) {
          const int64_t most = dst.in_flight + std::max<int64_t>(0, room) / bytes;
          src.in_flight = static_cast<int>(std::clamp<int64_t>(most, 1, src.in_flight));
        } else if (pass == 1) {
          dst.queued_bytes += bytes * std::max(0, src.in_flight - dst.in_flight);
        }
      }
    }
  }
}

// No schedule takes less: the first micro-batch goes down to a stage, which then works on all of them, and the last one's gradients come
// back; likewise for a link that carries all of them.
double Evaluator::MinSeconds() {
  const double others = input_.micro_batches - 1;
  round_trip_s_.assign(stages_.size(), 0);
  double min_s = 0;
  const auto seconds = [](const Channel& channel) {
    double hold_s = 0;
    for (const LinkOccupancy& use : channel.shared_links) hold_s = std::max(hold_s, use.hold_s);
    return hold_s;
  };
  for (size_t s = 0; s < stages_.size(); ++s) {
    const double stage_s = input_.stages[s].forward_s + input_.stages[s].backward_s;
    min_s = std::max(min_s, round_trip_s_[s] + input_.micro_batches * stage_s);
    for (int l : links_out_[s]) {
      const StageLink& link = input_.links[l];
      if (!link.backward.used) continue;
      const double there_s = seconds(link.forward), back_s = seconds(link.backward);
      const double dst_s = input_.stages[link.dst].forward_s + input_.stages[link.dst].backward_s;
      const double arrived_s = round_trip_s_[s] + stage_s + there_s + back_s + link.forward.latency_s + link.backward.latency_s;
      min_s = std::max(min_s, arrived_s + others * std::max(there_s, back_s) + dst_s);
      round_trip_s_[link.dst] = std::max(round_trip_s_[link.dst], arrived_s);
    }
  }
  return min_s + input_.step_overhead_s;
}

double Evaluator::Simulate(double max_s) {
  for (size_t s = 0; s < stages_.size(); ++s) input_.stages[s].in_flight = stages_[s].in_flight;
  ++evaluations_;
  const auto passes = static_cast<int64_t>(2 * (stages_.size() + link_count_));
  work_events_ += std::max(kEventsOfASimulation, passes * input_.micro_batches);
  return simulator_.RunWithCutoff(input_, max_s);
}

bool Evaluator::Prepare(const Assignment& assignment, bool list_values, Evaluation& evaluation) {
  const int count = static_cast<int>(assignment.devices.size());
  stages_.assign(count, Stage{});
  stage_of_.resize(problem_.positions());
  for (int s = 0; s < count; ++s) {
    Stage& stage = stages_[s];
    stage.begin = assignment.begins[s];
    stage.end = s + 1 < count ? assignment.begins[s + 1] : problem_.positions();
    stage.device = assignment.devices[s];
    std::fill(stage_of_.begin() + stage.begin, stage_of_.begin() + stage.end, s);
    if (!problem_.Allowed(stage.begin, stage.end, stage.device)) {
      evaluation.feasibility = Evaluation::Feasibility::kPinViolation;
      evaluation.stage = s;
      return false;
    }
    stage.forward_s = problem_.ForwardSeconds(stage.begin, stage.end, stage.device);
    stage.backward_s = problem_.BackwardSeconds(stage.begin, stage.end, stage.device);
    stage.update_s = problem_.UpdateSeconds(stage.begin, stage.end, stage.device);
    stage.memory.static_bytes = problem_.StaticBytes(stage.begin, stage.end);
    stage.memory.workspace_bytes = problem_.WorkspaceBytes(stage.begin, stage.end);
  }
  link_count_ = 0;
  links_out_.resize(std::max<size_t>(links_out_.size(), count));
  for (std::vector<int>& out : links_out_) out.clear();
  newest_link_to_.resize(links_out_.size(), -1);
  work_events_ += static_cast<int64_t>(problem_.values().size()) / kValuesOfAnEvent;
  if (problem_.request().recompute) block_bytes_.resize(std::max(block_bytes_.size(), static_cast<size_t>(count) * problem_.blocks()), 0);
  for (size_t v = 0; v < problem_.values().size(); ++v) AddValue(problem_.values()[v], static_cast<int>(v), list_values);
  for (Stage& stage : stages_) stage.memory.workspace_bytes += stage.largest_block;
  for (const size_t block : touched_blocks_) block_bytes_[block] = 0;
  touched_blocks_.clear();
  evaluation.feasibility = CheckLinks(evaluation);
  if (!evaluation.feasible()) return false;
  ShareRates();
  FindTied();
  ChooseCodecs(evaluation);
  if (!LimitDepths(evaluation)) return false;
  BuildPipeline(evaluation);
  if (!EgressFits(evaluation)) {
    ++evaluations_;  // a search that meets nothing else must end as well
    return false;
  }
  return true;
}

Evaluation Evaluator::Evaluate(const Assignment& assignment, Effort effort, double cutoff_s) {
  Evaluation evaluation;
  if (!Prepare(assignment, false, evaluation)) return evaluation;
  if (kept_ != nullptr) {
    for (size_t s = 0; s < stages_.size(); ++s) stages_[s].in_flight = kept_->stages[s].in_flight;
    evaluation.step_s = Simulate(std::numeric_limits<double>::infinity());
    return evaluation;
  }
  const double min_s = MinSeconds();
  evaluation.step_s = min_s;
  if (evaluation.cost_s() > cutoff_s * kSurely) return evaluation;
  evaluation.step_s = 1;
  const double max_s = cutoff_s * kSurely / evaluation.cost_s();
  if (problem_.request().schedule.forwards_first()) {
    for (Stage& stage : stages_) stage.in_flight = stage.max_in_flight;
    evaluation.step_s = Simulate(max_s);
    return evaluation;
  }
  if (problem_.request().max_in_flight > 0) {  // the user has chosen the depth: as much of it as memory allows
    SetDepths(kMaxMicroBatches);
    FitQueues();
    evaluation.step_s = Simulate(max_s);
    return evaluation;
  }
  if (effort == Effort::kQuick) {
    // As deep as memory lets it is best most often; where it starves the stages behind, the shallow one is.
    SetDepths(kMaxMicroBatches);
    FitQueues();
    evaluation.step_s = Simulate(max_s);
    if (evaluation.step_s <= min_s * kSurely) return evaluation;
    SetDepths(0);
    FitQueues();
    evaluation.step_s = std::min(evaluation.step_s, Simulate(std::min(max_s, evaluation.step_s)));
    return evaluation;
  }
  // From shallow to deep; deeper must pay for its memory.
  constexpr double kNone = std::numeric_limits<double>::infinity();
  std::vector<int> chosen(stages_.size());
  evaluation.step_s = kNone;
  double bound_s = kNone;
  constexpr int kDepths[] = {-1, 0, 1, 2, 4, kMaxMicroBatches};
  // What is little above `max_s` counts as well: something deeper may be below it and yet not worth its memory, and so on.
  const double near_s = max_s / std::pow(1 - kDepthTolerance, std::size(kDepths));
  for (const int extra : kDepths) {
    const double enough_s = evaluation.step_s * (1 - kDepthTolerance);
    if (enough_s <= min_s) break;
    SetDepths(extra);
    FitQueues();
    const double step_s = Simulate(std::min(near_s, enough_s));
    bound_s = std::min(bound_s, step_s);
    if (step_s > near_s || step_s >= enough_s) continue;
    evaluation.step_s = step_s;
    for (size_t s = 0; s < stages_.size(); ++s) chosen[s] = stages_[s].in_flight;
  }
  if (evaluation.step_s == kNone) {
    evaluation.step_s = bound_s;
    return evaluation;
  }
  for (size_t s = 0; s < stages_.size(); ++s) stages_[s].in_flight = chosen[s];
  FitQueues();
  return evaluation;
}

}  // namespace fusionllm::scheduler
