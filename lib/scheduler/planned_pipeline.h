// What planners work with and answer: a pipeline with its predictions and all that the search knows of it. lib/planning makes the plan of
// it that travels (lib/plan/plan.h); a refusal is that library's from the start.
//
// Plain data, self-contained (names beside indices), comparable with ==. Times are seconds and bytes are for one micro-batch unless said.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "lib/plan/plan.h"
#include "lib/scheduler/pipeline_model.h"
#include "lib/scheduler/snapshot.h"

namespace fusionllm::scheduler {

using plan::LowerBound;
using plan::PlanError;
using plan::Shortfall;

struct PlannedStage {
  int index = 0;
  std::vector<int> devices;  // indices into PlanRequest::devices; one today, replicas later
  std::vector<std::string> device_names;
  std::vector<int> ops;  // ascending, placeholders included
  std::vector<std::string> op_names;
  double forward_s = 0;  // compute of one micro-batch, without codecs
  double backward_s = 0;
  double codec_s = 0;        // codecs of one micro-batch, both directions
  double update_s = 0;       // optimizer, once a step
  int in_flight = 1;         // micro-batches that may be open (forward done, backward not)
  int64_t memory_bytes = 0;  // predicted peak
  double busy_ratio = 0;     // predicted share of the step spent computing
  bool operator==(const PlannedStage&) const = default;
};

// Traffic between two stages: forward src -> dst, gradients dst -> src.
struct PlannedLink {
  int src_stage = 0;
  int dst_stage = 0;
  std::string src_device, dst_device;
  std::vector<int> values;  // indices into PlanRequest::values
  std::vector<std::string> value_names;
  std::vector<opdag::ActivationKind> value_kinds;           // of each value
  int64_t forward_bytes = 0, backward_bytes = 0;            // dense
  int64_t forward_wire_bytes = 0, backward_wire_bytes = 0;  // as encoded
  std::string codec = "fp32";
  double ratio = 1;
  double loss_cost = 0;  // expected increase of the loss, nats per target
  // The codec's seconds per micro-batch, as LinkCodec has them.
  double producer_forward_s = 0, consumer_forward_s = 0;
  double producer_backward_s = 0, consumer_backward_s = 0;
  std::string codec_reason;  // why this codec, as its policy says; may be empty
  // Serialisation + latency of one micro-batch's message, alone on its link.
  double forward_s = 0, backward_s = 0;
  double forward_latency_s = 0, backward_latency_s = 0;  // of these
  double forward_share_bytes_per_s = 0;                  // of the line, by the bytes that others move there: what the codec was chosen for
  LinkCodec Codec() const;
  bool operator==(const PlannedLink&) const = default;
};

// A tied parameter whose uses ended up in several stages, which exchange their gradients after each step.
struct TiedExchange {
  struct Message {
    int src_stage = 0;
    int dst_stage = 0;
    int64_t bytes = 0;
    double seconds = 0;    // serialisation, alone on its link; 0 for stages whose devices no link joins
    double latency_s = 0;  // besides
    bool operator==(const Message&) const = default;
  };
  std::string parameter;
  std::vector<int> stages;
  int64_t bytes = 0;                // of the gradient of one use, dense
  std::vector<int64_t> sent_bytes;  // by stage of `stages`: what it sends to each of the others, as encoded
  std::string codec = "fp32";
  double loss_cost = 0;           // expected increase of the loss, nats per target
  std::string codec_reason;       // why this codec; may be empty
  std::vector<Message> messages;  // one from each of the stages to each other
  bool operator==(const TiedExchange&) const = default;
};

// By what the step of a pipeline was predicted, so that it can be simulated again, looked at and changed.
struct StepModel {
  PipelineInput input;
  std::vector<std::string> shared_links;  // names, by shared link; empty: a pair's own
  // From the last stage's device to the first's, for schedules that go round: with the message between neighbours that takes longest.
  // Unused when they are not joined or nothing crosses.
  StageLink wrap_around;
  bool operator==(const StepModel&) const = default;
};

struct PlannedPipeline {
  std::string strategy;
  std::vector<PlannedStage> stages;  // in pipeline order
  std::vector<PlannedLink> links;    // ascending by (src_stage, dst_stage)
  std::vector<TiedExchange> tied;
  std::vector<std::string> left_out;  // usable devices without a stage: the backup pool, spares included
  int micro_batches = 1;
  schedule::PipelineSchedule schedule = schedule::k1F1B;
  double predicted_step_s = 0;
  std::vector<LowerBound> lower_bounds;
  double lower_bound_s = 0;          // the largest of those that hold: no plan of this job on these devices can be faster
  double gap = 0;                    // predicted / lower bound - 1, >= 0
  int64_t evaluations = 0;           // candidates simulated
  std::vector<std::string> explain;  // why each stage, link and left-out device is as it is
  StepModel pipeline;
  bool operator==(const PlannedPipeline&) const = default;
};

using PlanOutcome = std::variant<PlannedPipeline, PlanError>;

}  // namespace fusionllm::scheduler
