#include "lib/scheduler/pipeline_model.h"
#include "lib/schedule/pipeline_schedule.h"

#include <algorithm>
#include <limits>

namespace fusionllm::scheduler {
namespace {

constexpr int32_t kForwardDone = 0;
constexpr int32_t kBackwardDone = 1;
constexpr int32_t kForwardArrives = 2;
constexpr int32_t kBackwardArrives = 3;
constexpr int32_t kWeightsDone = 4;
constexpr int32_t kForwardsTurn = 5;  // of a message that waited for those before it
constexpr int32_t kBackwardsTurn = 6;
constexpr int32_t kTiedTurn = 7;
constexpr double kRounding = 1e-9;  // sums in another order differ by far less

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

PipelineSimulator::Pass PipelineSimulator::InterleavedPass(const PipelineInput& input, int worker, int number, bool forward) const {
  const int chunks = input.virtual_stages;
  // Groups of as many micro-batches as there are workers; the last group is what is left.
  const int group = number / (workers_ * chunks), rest = number % (workers_ * chunks);
  const int size = std::min(workers_, input.micro_batches - group * workers_);
  const int chunk = forward ? rest / size : chunks - 1 - rest / size;
  return {chunk * workers_ + worker, group * workers_ + rest % size};
}

template <bool kPlain>
void PipelineSimulator::TryStart(const PipelineInput& input, int worker, double now_s) {
  WorkerState& state = states_[worker];
  if (state.busy) return;
  const StageTiming& limits = input.stages[worker];
  const int passes = kPlain ? input.micro_batches : input.micro_batches * input.virtual_stages;
  const bool interleaved = !kPlain && input.virtual_stages > 1;
  schedule::Progress& done = state.passes;
  Pass back{worker, done.backwards}, on{worker, done.forwards};
  const auto backward_ready = [&] {
    if (interleaved) {
      back = InterleavedPass(input, worker, done.backwards, false);
      if (forwards_done_[back.stage] <= back.micro_batch) return false;
    }
    return InputsArrived(input, back.stage, back.micro_batch, false);
  };
  const auto forward_ready = [&] {
    if (input.split_backward && limits.max_kept > 0 && done.forwards - state.weights >= limits.max_kept) return false;
    if (interleaved) on = InterleavedPass(input, worker, done.forwards, true);
    return InputsArrived(input, on.stage, on.micro_batch, true);
  };
  const std::optional<schedule::Pass> next = input.schedule.Next(done, passes, limits.in_flight, forward_ready, backward_ready);
  if (kPlain && next.has_value()) {
    // Of the stage itself, if it never waits again.
    const double left_s = (passes - done.backwards) * limits.backward_s + (passes - done.forwards) * limits.forward_s;
    min_s_ = std::max(min_s_, now_s + left_s + tail_s_[worker]);
    if (min_s_ > max_s_) return;
  }
  if (next == schedule::Pass::kBackward) {
    done.Begin(*next);
    const StageTiming& timing = input.stages[back.stage];
    Begin<kPlain>(worker, TimelineSpan::Kind::kBackward, back, now_s, timing.backward_s - (input.split_backward ? timing.weights_s : 0));
    Push(state.end_s, kBackwardDone, back.stage);
    return;
  }
  if (next == schedule::Pass::kForward) {
    if (done.forwards == 0) state.first_s = now_s;
    done.Begin(*next);
    Begin<kPlain>(worker, TimelineSpan::Kind::kForward, on, now_s, input.stages[on.stage].forward_s);
    Push(state.end_s, kForwardDone, on.stage);
    return;
  }
  if (input.split_backward && state.weights < state.backwards_done) {
    const Pass weights = interleaved ? InterleavedPass(input, worker, state.weights, false) : Pass{worker, state.weights};
    ++state.weights;
    Begin<kPlain>(worker, TimelineSpan::Kind::kWeights, weights, now_s, input.stages[weights.stage].weights_s);
    Push(state.end_s, kWeightsDone, weights.stage);
  }
}

template <bool kPlain>
void PipelineSimulator::Begin(int worker, TimelineSpan::Kind kind, Pass pass, double now_s, double seconds) {
  WorkerState& state = states_[worker];
  state.busy = true;
  if (!kPlain && noise_ != nullptr) seconds *= noise_->Factor(kind, pass.stage, pass.micro_batch);
  state.end_s = now_s + seconds;
  if (!kPlain && spans_ != nullptr) spans_->Add({kind, pass.stage, pass.micro_batch, now_s, state.end_s});
}

template <bool kPlain>
void PipelineSimulator::Send(const PipelineInput& input, int link, bool forward, double now_s) {
  const Channel& channel = forward ? input.links[link].forward : input.links[link].backward;
  if (!channel.used) return;
  if (!kPlain && spans_ != nullptr) (forward ? forward_handed_ : backward_handed_)[link].push_back(now_s);
  // Where others use its links, a message comes to them in its turn and not before: until then they carry what others hand over meanwhile.
  if (channel.shared_links.size() > 1) {
    int& waiting = (forward ? forward_waiting_ : backward_waiting_)[link];
    const double own_free_s = link_free_s_[channel.shared_links.front().shared_link];
    if (waiting > 0 || own_free_s > now_s) {
      if (waiting++ == 0) Push(own_free_s, forward ? kForwardsTurn : kBackwardsTurn, link);
      return;
    }
  }
  Transmit<kPlain>(channel, link, forward, now_s);
}

template <bool kPlain>
void PipelineSimulator::TransmitNext(const PipelineInput& input, int link, bool forward, double now_s) {
  const Channel& channel = forward ? input.links[link].forward : input.links[link].backward;
  Transmit<kPlain>(channel, link, forward, now_s);
  int& waiting = (forward ? forward_waiting_ : backward_waiting_)[link];
  if (--waiting > 0) Push(link_free_s_[channel.shared_links.front().shared_link], forward ? kForwardsTurn : kBackwardsTurn, link);
}

template <bool kPlain>
void PipelineSimulator::Transmit(const Channel& channel, int link, bool forward, double now_s) {
  const auto kind = forward ? TimelineSpan::Kind::kForwardMessage : TimelineSpan::Kind::kBackwardMessage;
  const int micro_batch = kPlain ? 0 : (forward ? forward_sent_ : backward_sent_)[link]++;
  const double factor = kPlain || noise_ == nullptr ? 1 : noise_->Factor(kind, link, micro_batch);
  // Other shared links carry others' messages until this one's turn comes there: only its own stays taken until all have carried it.
  double* const own_free_s = channel.shared_links.empty() ? nullptr : &link_free_s_[channel.shared_links.front().shared_link];
  const double ready_s = own_free_s == nullptr ? now_s : std::max(now_s, *own_free_s);
  double carried_s = ready_s, longest_s = 0;
  for (const LinkOccupancy& use : channel.shared_links) {
    const double hold_s = kPlain ? use.hold_s : use.hold_s * factor;
    double& free_s = link_free_s_[use.shared_link];
    free_s = std::max(free_s, ready_s) + hold_s;
    carried_s = std::max(carried_s, free_s);
    if (!kPlain) longest_s = std::max(longest_s, hold_s);
  }
  if (own_free_s != nullptr) *own_free_s = carried_s;
  const double arrives_s = carried_s + channel.latency_s;
  if (!kPlain && spans_ != nullptr) {
    const double handed_s = (forward ? forward_handed_ : backward_handed_)[link][micro_batch];
    spans_->Add({kind, link, micro_batch, std::max(ready_s, carried_s - longest_s), carried_s, handed_s, arrives_s});
  }
  Push(arrives_s, forward ? kForwardArrives : kBackwardArrives, link);
}

void PipelineSimulator::SendTied(const PipelineInput& input, int worker, double now_s) {
  for (size_t i = 0; i < input.tied.size(); ++i) {
    const TiedMessage& message = input.tied[i];
    if (message.from != worker) continue;
    tied_states_[i].sent_s = now_s;
    // The second of two to the same worker waits for the first.
    const bool waits = std::any_of(input.tied.begin(), input.tied.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const TiedMessage& other) { return other.from == worker && other.to == message.to; });
    if (!waits) Push(now_s, kTiedTurn, static_cast<int32_t>(i));
  }
}

template <bool kPlain>
void PipelineSimulator::TransmitTied(const PipelineInput& input, int message, double now_s) {
  const TiedMessage& tied = input.tied[message];
  const Channel& channel = tied.channel;
  TiedState& state = tied_states_[message];
  double carried_s = now_s, longest_s = 0;
  if (!channel.shared_links.empty()) {
    double& own_free_s = link_free_s_[channel.shared_links.front().shared_link];
    if (own_free_s > now_s) return Push(own_free_s, kTiedTurn, message);
    const double factor = kPlain || noise_ == nullptr ? 1 : noise_->Factor(TimelineSpan::Kind::kTiedMessage, message, 0);
    for (const LinkOccupancy& use : channel.shared_links) {
      const double hold_s = use.hold_s * factor / tied.pieces;
      double& free_s = link_free_s_[use.shared_link];
      free_s = std::max(free_s, now_s) + hold_s;
      carried_s = std::max(carried_s, free_s);
      longest_s = std::max(longest_s, hold_s);
    }
    own_free_s = carried_s;
  }
  if (state.pieces == 0) state.begin_s = std::max(now_s, carried_s - longest_s);
  if (++state.pieces < tied.pieces) return Push(carried_s, kTiedTurn, message);
  const double arrives_s = carried_s + channel.latency_s;
  tied_received_s_[tied.to] = std::max(tied_received_s_[tied.to], arrives_s);
  if (tied.before_report) tied_before_s_[tied.to] = std::max(tied_before_s_[tied.to], arrives_s);
  if (!kPlain && spans_ != nullptr) {
    spans_->Add({TimelineSpan::Kind::kTiedMessage, message, 0, state.begin_s, carried_s, state.sent_s, arrives_s});
  }
  for (size_t next = static_cast<size_t>(message) + 1; next < input.tied.size(); ++next) {
    if (input.tied[next].from != tied.from || input.tied[next].to != tied.to) continue;
    return Push(carried_s, kTiedTurn, static_cast<int32_t>(next));
  }
}

double PipelineSimulator::FinishStep(const PipelineInput& input) {
  ready_s_.resize(workers_);
  decided_s_.resize(workers_);  // of a worker that does not decide: when it can report
  for (int w = 0; w < workers_; ++w) {
    ready_s_[w] = std::max(states_[w].end_s, tied_received_s_[w]);
    decided_s_[w] = std::max(states_[w].end_s, tied_before_s_[w]);
  }
  for (const StepEndMessage& m : input.reports) decided_s_[m.to] = std::max(decided_s_[m.to], decided_s_[m.from] + m.seconds);
  for (const StepEndMessage& m : input.decisions) ready_s_[m.to] = std::max(ready_s_[m.to], decided_s_[m.from] + m.seconds);
  double period_s = 0;
  for (int w = 0; w < workers_; ++w) {
    const double reported_s = std::max(states_[w].end_s, tied_before_s_[w]);
    ready_s_[w] = std::max(ready_s_[w], decided_s_[w]);
    double update_s = 0;
    for (size_t s = w; s < input.stages.size(); s += workers_) update_s += input.stages[s].update_s;
    period_s = std::max(period_s, ready_s_[w] + update_s - states_[w].first_s);
    if (spans_ == nullptr) continue;
    if (ready_s_[w] > reported_s) spans_->Add({TimelineSpan::Kind::kNorm, w, 0, reported_s, ready_s_[w]});
    spans_->Add({TimelineSpan::Kind::kUpdate, w, 0, ready_s_[w], ready_s_[w] + update_s});
  }
  return period_s + input.step_overhead_s;
}

template <bool kPlain>
void PipelineSimulator::Loop(const PipelineInput& input) {
  const auto worker_of = [&](int stage) { return kPlain ? stage : stage % workers_; };
  const int passes = input.micro_batches * input.virtual_stages;
  for (int w = 0; w < workers_; ++w) TryStart<kPlain>(input, w, 0);
  while (!heap_.empty()) {
    const Event event = Pop();
    int worker = 0;
    switch (event.kind) {
      case kForwardsTurn:
      case kBackwardsTurn:
        TransmitNext<kPlain>(input, event.id, event.kind == kForwardsTurn, event.at_s);
        continue;
      case kTiedTurn:
        TransmitTied<kPlain>(input, event.id, event.at_s);
        continue;
      case kForwardDone:
        worker = worker_of(event.id);
        states_[worker].busy = false;
        ++states_[worker].passes.forwards_done;
        if (!kPlain) ++forwards_done_[event.id];
        for (int i = out_offset_[event.id]; i < out_offset_[event.id + 1]; ++i) Send<kPlain>(input, out_links_[i], true, event.at_s);
        break;
      case kBackwardDone:
        worker = worker_of(event.id);
        states_[worker].busy = false;
        ++states_[worker].backwards_done;
        for (int i = in_offset_[event.id]; i < in_offset_[event.id + 1]; ++i) Send<kPlain>(input, in_links_[i], false, event.at_s);
        if (!input.split_backward && states_[worker].backwards_done == passes) SendTied(input, worker, event.at_s);
        break;
      case kWeightsDone:
        worker = worker_of(event.id);
        states_[worker].busy = false;
        if (states_[worker].weights == passes) SendTied(input, worker, event.at_s);
        break;
      case kForwardArrives:
        ++forward_arrived_[event.id];
        worker = worker_of(input.links[event.id].dst);
        break;
      default:
        ++backward_arrived_[event.id];
        worker = worker_of(input.links[event.id].src);
    }
    TryStart<kPlain>(input, worker, event.at_s);
    if (kPlain && min_s_ > max_s_) return;
  }
}

void PipelineSimulator::Start(const PipelineInput& input) {
  heap_.clear();
  order_ = 0;
  workers_ = input.workers();
  states_.assign(workers_, WorkerState{});
  forwards_done_.assign(input.stages.size(), 0);
  link_free_s_.assign(input.shared_links, 0);
  Index(input);
  forward_sent_.assign(input.links.size(), 0);
  backward_sent_.assign(input.links.size(), 0);
  forward_waiting_.assign(input.links.size(), 0);
  backward_waiting_.assign(input.links.size(), 0);
  tied_states_.assign(input.tied.size(), {});
  tied_received_s_.assign(workers_, 0);
  tied_before_s_.assign(workers_, 0);
  tail_s_.assign(input.stages.size(), -std::numeric_limits<double>::infinity());
  max_s_ = std::numeric_limits<double>::infinity();
  min_s_ = 0;
}

// A stage's last backward comes after that of every stage whose gradients it needs; the first stage's ends the step.
void PipelineSimulator::FindTails(const PipelineInput& input) {
  // Then the gradients that it shares go to another stage, which reports.
  double exchange_s = 0;
  for (const TiedMessage& tied : input.tied) {
    if (tied.from != 0 || !tied.before_report) continue;
    double carried_s = 0;
    for (const LinkOccupancy& use : tied.channel.shared_links) carried_s = std::max(carried_s, use.hold_s);
    for (const StepEndMessage& report : input.reports) {
      if (report.from == tied.to) exchange_s = std::max(exchange_s, carried_s + tied.channel.latency_s + report.seconds);
    }
  }
  tail_s_[0] = exchange_s + input.stages[0].update_s + input.step_overhead_s;
  for (size_t s = 1; s < input.stages.size(); ++s) {
    for (int i = in_offset_[s]; i < in_offset_[s + 1]; ++i) {
      const StageLink& link = input.links[in_links_[i]];
      if (!link.backward.used) continue;
      double carried_s = 0;
      for (const LinkOccupancy& use : link.backward.shared_links) carried_s = std::max(carried_s, use.hold_s);
      tail_s_[s] = std::max(tail_s_[s], carried_s + link.backward.latency_s + input.stages[link.src].backward_s + tail_s_[link.src]);
    }
  }
}

double PipelineSimulator::RunWithCutoff(const PipelineInput& input, double max_s) {
  spans_ = nullptr;
  noise_ = nullptr;
  Start(input);
  FindTails(input);
  max_s_ = max_s * (1 + kRounding);
  Loop<true>(input);
  return min_s_ > max_s_ ? min_s_ : FinishStep(input);
}

PipelineResult PipelineSimulator::Run(const PipelineInput& input, SpanSink* spans, const PassNoise* noise) {
  spans_ = spans;
  noise_ = noise;
  Start(input);
  if (spans != nullptr) {
    forward_handed_.assign(input.links.size(), {});
    backward_handed_.assign(input.links.size(), {});
  }
  if (input.virtual_stages == 1 && spans == nullptr && noise == nullptr) {
    Loop<true>(input);
  } else {
    Loop<false>(input);
  }
  PipelineResult result;
  for (const WorkerState& state : states_) {
    result.compute_end_s = std::max(result.compute_end_s, state.end_s);
    if (state.backwards_done != input.micro_batches * input.virtual_stages) result.complete = false;
  }
  result.step_s = FinishStep(input);
  return result;
}

PipelineResult PipelineSimulator::Run(const PipelineInput& input, std::vector<TimelineSpan>* timeline) {
  class Appender final : public SpanSink {
   public:
    explicit Appender(std::vector<TimelineSpan>& spans) : spans_(spans) {}
    void Add(const TimelineSpan& span) override { spans_.push_back(span); }

   private:
    std::vector<TimelineSpan>& spans_;
  };
  timeline->clear();
  Appender appender(*timeline);
  return Run(input, &appender);
}

double FillPlusBottleneck(double fill_s, double bottleneck_s, int micro_batches) { return fill_s + (micro_batches - 1) * bottleneck_s; }

}  // namespace fusionllm::scheduler
