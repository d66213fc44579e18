// Time of one training step of a pipeline: an event-driven simulation of the schedule that the runtime really runs.
//
// Stages are serial. A stage runs forwards while fewer than in_flight micro-batches are open, and backwards, in turns where both are ready
// (1F1B), or all forwards before any backward (GPipe); both in micro-batch order. A message leaves when its stage ends, waits until every
// wire it needs is free, holds each for bytes / rate (first come, first served) and arrives a latency after the slowest has carried it;
// sends never block the stage. After its last backward a stage exchanges gradients of shared parameters, reports to stage 0, awaits its
// decision (norm, loss) and updates.
//
// With the backward split (zero bubble, arXiv 2401.10241) its message leaves when the gradients of the inputs are there; those of the
// weights fill the time in which the stage could do nothing else. A model only: the runtime does not split yet.
//
// The time of a step is the period of a long run: the least T such that no stage, T after its first forward of this step, is still busy
// with it. A stage deep in the pipeline may thus update while the next step's first micro-batch is on its way.
//
// Deterministic: simultaneous events run in the order they were made. Cost: about 40 ns an event, (2 stages + 2 links) x micro-batches
// events. A PipelineSimulator keeps its scratch memory between runs; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler {

struct StageTiming {
  double forward_s = 0;  // one micro-batch, codecs included
  double backward_s = 0;
  double weights_s = 0;  // part of backward_s that computes the gradients of weights; counts when the backward is split
  double update_s = 0;   // once a step
  int in_flight = 1;     // >= 1; GPipe ignores it
  int most_kept = 0;     // with the backward split: forwards whose weights' gradients may be missing, for want of memory; 0: any number
};

// What a message holds, for how long. Wires are dense ids below PipelineInput::wires.
struct WireUse {
  int wire = 0;
  double hold_s = 0;
};

// One direction of a pair of stages.
struct Channel {
  bool used = false;
  double latency_s = 0;
  std::vector<WireUse> wires;
};

struct StageLink {
  int src = 0;  // src < dst
  int dst = 0;
  Channel forward;
  Channel backward;  // unused when nothing differentiable crosses
};

// A message at the end of a step, latency and serialisation together.
struct EndMessage {
  int from = 0;
  int to = 0;
  double seconds = 0;
};

struct PipelineInput {
  std::vector<StageTiming> stages;
  std::vector<StageLink> links;
  int wires = 0;
  int micro_batches = 1;
  Schedule schedule = Schedule::k1F1B;  // kAuto counts as k1F1B
  bool split_backward = false;
  std::vector<EndMessage> tied;       // use gradients of shared parameters, each way; sent when a stage's last backward is done
  std::vector<EndMessage> reports;    // then: to stage 0, which decides when it has all
  std::vector<EndMessage> decisions;  // and answers; without any, stages update at once
  double step_overhead_s = 0;
};

struct TimelineSpan {
  enum class Kind { kForward, kBackward, kWeights, kForwardMessage, kBackwardMessage };
  Kind kind = Kind::kForward;
  int stage = 0;  // or index of the link
  int micro_batch = 0;
  double begin_s = 0;
  double end_s = 0;
};

struct PipelineResult {
  double step_s = 0;         // period: start of a step to the start of the next
  double compute_end_s = 0;  // end of the last backward
};

class PipelineSimulator {
 public:
  // Input is trusted: src < dst, indices in range, finite numbers. `timeline`, when given, receives every span, in the order decided.
  PipelineResult Run(const PipelineInput& input, std::vector<TimelineSpan>* timeline = nullptr);

 private:
  struct Event {
    double at_s;
    int64_t order;
    int32_t kind;  // of the k...Done and k...Arrives below
    int32_t id;
  };
  struct StageState {
    int forwards = 0;  // started
    int forwards_done = 0;
    int backwards = 0;  // started
    int backwards_done = 0;
    int weights = 0;  // started
    bool busy = false;
    bool last_went_back = false;
    double first_s = 0;  // start of the first forward
    double end_s = 0;
  };

  void Push(double at_s, int32_t kind, int32_t id);
  Event Pop();
  void TryStart(const PipelineInput& input, int stage, double now_s);
  void Begin(int stage, TimelineSpan::Kind kind, int micro_batch, double now_s, double seconds);
  void Send(const PipelineInput& input, int link, bool forward, double now_s);
  bool InputsArrived(const PipelineInput& input, int stage, int micro_batch, bool forward) const;
  void Index(const PipelineInput& input);
  double FinishStep(const PipelineInput& input);

  std::vector<Event> heap_;
  int64_t order_ = 0;
  std::vector<StageState> stages_;
  std::vector<int> forward_arrived_, backward_arrived_;  // by link
  std::vector<int> forward_sent_, backward_sent_;        // by link, for the timeline
  std::vector<double> wire_free_s_;
  // Links into a stage and out of it, as offsets into flat lists.
  std::vector<int> in_offset_, in_links_, out_offset_, out_links_;
  std::vector<double> ready_s_, heard_s_;
  std::vector<TimelineSpan>* timeline_ = nullptr;
};

// Closed-form estimate: sum of stage times and link crossings once (fill), plus (m - 1) times the slowest of them (architecture of the
// time model: T = sum C_p + 2 sum (a + x) + (m - 1) max(max C, max x)). What partitioners minimise before the simulator decides.
double FillPlusBottleneck(double fill_s, double bottleneck_s, int micro_batches);

// Latency-aware warm-up depth of stage `stage` of `stages`: (stages - stage) (1 + 2 (x + a) / (F + B)), rounded up, one more when
// links take time (rounding leaves stages out of step: at x = F the utilisation of eight stages is 0.70 without it, 0.73 with), at least 1,
// at most micro_batches; crossing_s = serialisation + latency of the slowest link after it, stage_s = its forward + backward.
int WarmUpDepth(int stage, int stages, double crossing_s, double stage_s, int micro_batches);

}  // namespace fusionllm::scheduler
