// One candidate: consecutive runs of the op order on devices; and its evaluation: codecs, memory, depth of the pipeline, simulated step.
//
// An Evaluator keeps scratch memory and is for one thread; the Problem it borrows must outlive it. Cost: O(ops + values) plus one
// simulation (Effort::kQuick) or a handful (kFull).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/scheduler/pipeline_model.h"
#include "lib/scheduler/planned_pipeline.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

struct Assignment {
  std::vector<int> begins;   // first position of each stage, ascending; begins[0] == 0
  std::vector<int> devices;  // of each stage, all different
  bool operator==(const Assignment&) const = default;
};

// Parts of a stage's memory; MemoryOf is the one place that says how they add up. What it counts is proven against the simulator's timeline
// in memory_model_test.cc.
struct StageMemory {
  int64_t static_bytes = 0;     // weights, gradients, optimizer state
  int64_t stash_bytes = 0;      // saved activations of one micro-batch
  int64_t workspace_bytes = 0;  // scratch of the largest op
  int64_t buffer_bytes = 0;     // messages being sent, received, encoded: two of each link and direction
  // Of a micro-batch under way: what leaves forward, or the gradient that has come back for it, whichever is more. The network may be
  // slower than the stage, and then the stage slower than the gradients, so that all but the two in buffer_bytes are queued here.
  int64_t outgoing_bytes = 0;
  int64_t incoming_bytes = 0;  // likewise, of what arrives: until its forward starts, and again as a gradient after its backward
};
int64_t MemoryOf(const StageMemory& memory, int in_flight);

// Serialisation and latency of one message, alone on its link. Precondition: bytes_per_s > 0.
double CrossingSeconds(int64_t bytes, double bytes_per_s, double latency_s);

enum class Effort { kQuick, kFull };

// How much longer training takes to the same loss for each nat per target that lossy links cost: at 600 of the steps of the probe in
// docs/design/codec-limits.md the loss fell by 5.8e-4 nats a step, so that one nat is about 2.9 times the steps made so far.
inline constexpr double kTimePerNat = 2.9;

struct Evaluation {
  enum class Feasibility { kFeasible, kTooMuchMemory, kDisconnected, kPinViolation, kEgressLimitExceeded };
  Feasibility feasibility = Feasibility::kFeasible;
  int stage = 0;  // that makes it infeasible
  int other_stage = 0;
  int64_t needed_bytes = 0;  // memory of the stage, or what leaves its site in a step
  double step_s = 0;
  double loss_cost = 0;  // sum over links
  bool feasible() const { return feasibility == Feasibility::kFeasible; }
  // What candidates are compared by: seconds of a step, stretched by what its compression costs in steps to the same loss.
  double cost_s() const { return step_s * (1 + kTimePerNat * loss_cost); }
};

// True when a is the better candidate: of less cost by more than rounding, else less lossy, else fewer stages.
bool Better(const Evaluation& a, size_t stages_a, const Evaluation& b, size_t stages_b);

struct Candidate {
  Assignment assignment;
  Evaluation evaluation;
};

class Evaluator {
 public:
  static constexpr int64_t kEventsOfASimulation = 512;

  explicit Evaluator(const Problem& problem) : problem_(problem) {}

  // Precondition: begins ascend strictly from 0 and stay below positions(); devices are valid and differ. Exact where the cost is at
  // most `cutoff_s`, else some time above that, which takes no simulation or not all of one.
  Evaluation Evaluate(const Assignment& assignment, Effort effort, double cutoff_s = std::numeric_limits<double>::infinity());
  // The plan of the assignment, without bounds and `explain`. Precondition: it is feasible.
  PlannedPipeline ToPlan(const Assignment& assignment, absl::string_view planner);
  // From now on links have the codecs and stages the depths that `plan` gave them, not the best; assignments must have its stages. Null: as
  // ever. Not owned.
  void Keep(const PlannedPipeline* plan) { kept_ = plan; }
  int64_t evaluations() const { return evaluations_; }
  // What searches charge to their budget: simulations, a large one as several, one that was given up whole.
  int64_t work() const { return work_events_ / kEventsOfASimulation; }

 private:
  struct Stage {
    int begin = 0, end = 0, device = 0;
    double forward_s = 0, backward_s = 0, update_s = 0;
    double codec_forward_s = 0, codec_backward_s = 0;
    StageMemory memory;
    int64_t largest_block = 0;  // bytes kept inside, of what recomputation makes again at a time
    int in_flight = 1;
    int max_in_flight = 1;     // that memory and the job allow
    int64_t queued_bytes = 0;  // messages that wait because the stage before may be further ahead
  };
  struct CutLink {
    int src = 0, dst = 0;
    std::vector<int> values;  // chain values; filled for plans only
  };

  bool Prepare(const Assignment& assignment, bool list_values, Evaluation& evaluation);
  void AddValue(const ChainValue& value, int chain_value, bool list_values);
  void AddKept(const ChainValue& value);
  void AddReadAgain(const ChainValue& value);
  int LinkBetween(int src, int dst);
  void ShareRates();
  void FindTied();
  void SetTiedCodec(size_t exchange, size_t codec);
  void ChooseTiedCodecs(Evaluation& evaluation);
  void CompressTied();
  std::string WhyTiedCodec(size_t exchange);
  void AddExchanges(PlannedPipeline& plan);
  double ExchangeSeconds(const TiedExchange& exchange) const;
  void ChooseCodecs(Evaluation& evaluation);
  bool LimitDepths(Evaluation& evaluation);
  void SetDepths(int extra);
  void FitQueues();
  void BuildPipeline(Evaluation& evaluation);
  void BuildExchange();
  int SharedLinkBetween(int from, int to);
  void AddTied(int exchange, size_t sender, int to);  // what the sender-th of its stages sends to `to`
  void CutTied();
  void FillChannel(Channel& channel, int shared_link, int src_device, int dst_device, int64_t bytes);
  StepModel DescribePipeline();
  // A time between `max_s` and the step's where that is longer.
  double Simulate(double max_s);
  double MinSeconds();
  // What a site sends to others in a step.
  struct Egress {
    int64_t bytes = 0;
    int64_t encoded_bytes = 0, dense_bytes = 0;  // of that and before its encoding, what codecs may touch
    int stage = 0;                               // one that sends
  };
  std::map<absl::string_view, Egress> EgressBySite() const;
  void KeepWithinEgress(double target_s);
  bool EgressFits(Evaluation& evaluation) const;
  Evaluation::Feasibility CheckLinks(Evaluation& evaluation) const;
  double HopSeconds(int src_stage, int dst_stage, int64_t bytes) const;
  double ControlSeconds(int src_stage, int dst_stage, int64_t bytes) const;

  const Problem& problem_;
  PipelineSimulator simulator_;
  PipelineInput input_;
  std::vector<Stage> stages_;
  // Parallel; the first link_count_ are in use.
  std::vector<CutLink> links_;
  std::vector<LinkTraffic> traffic_;
  std::vector<LinkCodec> codecs_;
  size_t link_count_ = 0;
  std::vector<int> stage_of_;         // by position
  std::vector<int64_t> block_bytes_;  // by stage and block; nought but for touched_blocks_
  std::vector<size_t> touched_blocks_;
  std::vector<std::vector<int>> links_out_;  // by stage, indices into links_
  std::vector<double> resource_bytes_;
  std::vector<int> resource_link_, touched_resources_;
  std::vector<TiedExchange> tied_;
  // Of each exchange: its parameter in the request, the codec it has and the least aggressive it may have, of the parameter's.
  struct TiedChoice {
    size_t parameter = 0, codec = 0, mildest = 0;
  };
  std::vector<TiedChoice> tied_choices_;
  static constexpr int kNoSender = -1, kManySenders = -2;
  std::vector<int> link_user_;       // by shared link: the directed pair of stages that sends over it
  std::vector<int> newest_link_to_;  // by stage
  std::vector<double> round_trip_s_;
  int64_t evaluations_ = 0;
  int64_t work_events_ = 0;
  const PlannedPipeline* kept_ = nullptr;
};

}  // namespace fusionllm::scheduler
