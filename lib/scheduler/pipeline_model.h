// Time of one training step of a pipeline: an event-driven simulation of the schedule that the runtime really runs.
//
// Stages are serial. A stage runs forwards while fewer than in_flight micro-batches are open, and backwards, in turns where both are ready
// (1F1B), or all forwards before any backward (GPipe); both in micro-batch order. A message is handed over when its stage ends. It
// waits for the one before it on its link, the first of its shared links; each of its shared links then carries it for bytes / rate in its
// turn (first come, first served; a shared link is not held while the message waits for another), and it arrives a latency after the last
// of them has. That is how the link emulator passes a message through its path. Sends never block the stage.
//
// After its last backward a stage sends the gradients of its uses of shared parameters to the other stages that use them, behind what it
// sent there before and beside what others send over the same shared links. It reports to stage 0 where it has those that it reports on,
// awaits its decision (norm, loss) and all others' gradients, and updates. Reports and decisions are small, and overtake: they wait for no
// shared link.
//
// With the backward split (zero bubble, arXiv 2401.10241) its message leaves when the gradients of the inputs are there; those of the
// weights fill the time in which the stage could do nothing else. Interleaved (arXiv 2104.04473, section 2.2), worker w of p runs the
// stages w, w + p, w + 2p ...: forwards of p micro-batches through one of them, then through the next, backwards the other way round. Both
// are models only: the runtime does neither yet.
//
// The time of a step is the period of a long run: the least T such that no stage, T after its first forward of this step, is still busy
// with it. A stage deep in the pipeline may thus update while the next step's first micro-batch is on its way.
//
// Deterministic: simultaneous events run in the order they were made. Cost: about 40 ns an event, (2 stages + 2 links) x micro-batches
// events, one more for each message that waits its turn on shared links. A PipelineSimulator keeps its scratch memory between runs; one
// thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/schedule/pipeline_schedule.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler {

struct StageTiming {
  double forward_s = 0;  // one micro-batch, codecs included
  double backward_s = 0;
  double weights_s = 0;  // part of backward_s that computes the gradients of weights; counts when the backward is split
  double update_s = 0;   // once a step
  // Limits of a worker, those of its first stage: forwards that may be open, >= 1 (GPipe ignores it); and with the backward split those
  // whose weights' gradients may be missing, for want of memory; 0: any number.
  int in_flight = 1;
  int max_kept = 0;
  double codec_forward_s = 0;  // part of forward_s and of backward_s that encodes and decodes: for reports
  double codec_backward_s = 0;
  bool operator==(const StageTiming&) const = default;
};

// What a message holds, for how long. Shared links (ports, links between sites, and the link of a pair for its own messages) are dense ids
// below PipelineInput::shared_links.
struct LinkOccupancy {
  int shared_link = 0;
  double hold_s = 0;
  bool operator==(const LinkOccupancy&) const = default;
};

// One direction of a pair of stages.
struct Channel {
  bool used = false;
  double latency_s = 0;
  std::vector<LinkOccupancy> shared_links;  // the pair's own first
  int64_t bytes = 0;                        // of one message: for reports
  bool operator==(const Channel&) const = default;
};

struct StageLink {
  int src = 0;  // src < dst
  int dst = 0;
  Channel forward;
  Channel backward;  // unused when nothing differentiable crosses
  bool operator==(const StageLink&) const = default;
};

// A report or a decision between workers at the end of a step.
struct StepEndMessage {
  int from = 0;
  int to = 0;
  double seconds = 0;    // latency and serialisation together
  double latency_s = 0;  // of these
  int64_t bytes = 0;     // for reports
  bool operator==(const StepEndMessage&) const = default;
};

// Gradients of shared parameters that one worker sends another when its last backward is done.
struct TiedMessage {
  int from = 0;
  int to = 0;
  int exchange = 0;           // which of PlannedPipeline::tied: for reports
  bool before_report = true;  // `to` reports on the parameter, and waits for the message first
  Channel channel;            // its first shared link is that of the messages between the two
  // Where others send over the same shared links meanwhile, a long message lets theirs pass between its pieces; those between the same two
  // workers follow one another whole.
  int pieces = 1;
  bool operator==(const TiedMessage&) const = default;
};

struct PipelineInput {
  std::vector<StageTiming> stages;
  int virtual_stages = 1;  // of each worker: stage s runs on worker s % workers(); stages.size() is a multiple
  std::vector<StageLink> links;
  int shared_links = 0;
  int micro_batches = 1;
  schedule::PipelineSchedule schedule = schedule::k1F1B;
  bool split_backward = false;
  std::vector<TiedMessage> tied;
  std::vector<StepEndMessage> reports;    // to stage 0, which decides when it has all
  std::vector<StepEndMessage> decisions;  // and answers; without any, stages update at once
  double step_overhead_s = 0;
  int workers() const { return static_cast<int>(stages.size()) / virtual_stages; }
  bool operator==(const PipelineInput&) const = default;
};

struct TimelineSpan {
  // kNorm: a worker has the gradients of a step and waits for what stage 0 decides, with the global norm.
  enum class Kind { kForward, kBackward, kWeights, kUpdate, kForwardMessage, kBackwardMessage, kTiedMessage, kNorm };
  Kind kind = Kind::kForward;
  int stage = 0;  // or index of the link or of the tied message; kUpdate, kNorm: the worker
  int micro_batch = 0;
  double begin_s = 0;
  double end_s = 0;
  // Of a message, which its slowest shared link has carried at end_s: when its stage handed it over, and when it is there.
  double sent_s = 0;
  double arrives_s = 0;
  bool operator==(const TimelineSpan&) const = default;
};

// Gets every span, in the order decided: those of one stage, and those of one direction of a link, ascend and do not overlap.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void Add(const TimelineSpan& span) = 0;
};

// What makes one pass or message longer or shorter than its mean.
class PassNoise {
 public:
  virtual ~PassNoise() = default;
  // A factor > 0. Pure, so that it does not matter which event comes first.
  virtual double Factor(TimelineSpan::Kind kind, int stage_or_link, int micro_batch) const = 0;
};

struct PipelineResult {
  double step_s = 0;         // period: start of a step to the start of the next
  double compute_end_s = 0;  // end of the last backward
  bool complete = true;      // false: interleaved with too few micro-batches in flight, nothing could go on
};

class PipelineSimulator {
 public:
  // Input is trusted: src < dst, indices in range, finite numbers.
  PipelineResult Run(const PipelineInput& input, SpanSink* spans = nullptr, const PassNoise* noise = nullptr);
  PipelineResult Run(const PipelineInput& input, std::vector<TimelineSpan>* timeline);
  // The period of a step; or, from the moment when the step is sure to take longer than `max_s`, a time between that and the period.
  // Not for interleaved or split schedules.
  double RunWithCutoff(const PipelineInput& input, double max_s);

 private:
  struct Event {
    double at_s;
    int64_t order;
    int32_t kind;  // one of the constants of the source
    int32_t id;
  };
  struct WorkerState {
    schedule::Progress passes;  // of all its stages
    int backwards_done = 0;
    int weights = 0;  // started
    bool busy = false;
    double first_s = 0;  // start of the first forward
    double end_s = 0;
  };
  struct Pass {
    int stage = 0;
    int micro_batch = 0;
  };

  void Push(double at_s, int32_t kind, int32_t id);
  Event Pop();
  // The number-th forward or backward of a worker.
  Pass InterleavedPass(const PipelineInput& input, int worker, int number, bool forward) const;
  // kPlain: not interleaved, no observer, no noise: what a search runs most of its time, a sixth faster.
  template <bool kPlain>
  void Loop(const PipelineInput& input);
  template <bool kPlain>
  void TryStart(const PipelineInput& input, int worker, double now_s);
  template <bool kPlain>
  void Begin(int worker, TimelineSpan::Kind kind, Pass pass, double now_s, double seconds);
  template <bool kPlain>
  void Send(const PipelineInput& input, int link, bool forward, double now_s);
  // The message of a link that waits longest goes on its way.
  template <bool kPlain>
  void TransmitNext(const PipelineInput& input, int link, bool forward, double now_s);
  template <bool kPlain>
  void Transmit(const Channel& channel, int link, bool forward, double now_s);
  // A worker's gradients are complete: those of its shared parameters go on their way.
  void SendTied(const PipelineInput& input, int worker, double now_s);
  // The next piece of a tied message, when its shared link is free.
  template <bool kPlain>
  void TransmitTied(const PipelineInput& input, int message, double now_s);
  bool InputsArrived(const PipelineInput& input, int stage, int micro_batch, bool forward) const;
  void Start(const PipelineInput& input);
  void Index(const PipelineInput& input);
  void FindTails(const PipelineInput& input);
  double FinishStep(const PipelineInput& input);

  std::vector<Event> heap_;
  int64_t order_ = 0;
  int workers_ = 0;
  std::vector<WorkerState> states_;
  std::vector<int> forwards_done_;                                     // by stage
  std::vector<int> forward_arrived_, backward_arrived_;                // by link
  std::vector<int> forward_sent_, backward_sent_;                      // by link, for spans and noise
  std::vector<int> forward_waiting_, backward_waiting_;                // by link: messages handed over whose turn is still to come
  std::vector<std::vector<double>> forward_handed_, backward_handed_;  // by link and message: when, for spans
  std::vector<double> link_free_s_;
  // Links into a stage and out of it, as offsets into flat lists.
  std::vector<int> in_offset_, in_links_, out_offset_, out_links_;
  std::vector<double> ready_s_, decided_s_;
  struct TiedState {
    int pieces = 0;  // carried
    double sent_s = 0, begin_s = 0;
  };
  std::vector<TiedState> tied_states_;   // by tied message
  std::vector<double> tied_received_s_;  // by worker: when the last of them is there
  std::vector<double> tied_before_s_;    // likewise, of those that it waits for before its report
  // Of Judge: what a step takes at least after the last backward of a stage, and what it may take and is known to take.
  std::vector<double> tail_s_;
  double max_s_ = 0, min_s_ = 0;
  SpanSink* spans_ = nullptr;
  const PassNoise* noise_ = nullptr;
};

// Closed-form estimate: sum of stage times and link crossings once (fill), plus (m - 1) times the slowest of them:
// T = sum C_p + 2 sum (a + x) + (m - 1) max(max C, max x). What partitioners minimise before the simulator decides.
double FillPlusBottleneck(double fill_s, double bottleneck_s, int micro_batches);

}  // namespace fusionllm::scheduler
