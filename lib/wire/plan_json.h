// The plan document: what `fusionctl plan` prints, the scheduler service answers and executors are assigned. JSON text, one line.
//
// Plain structs beside the text, so that an executor needs no planner. Equal structs give equal bytes (sorted keys, shortest numbers that
// read back exactly); reading trusts nothing. Pure functions; thread-safe.
// Seconds and bytes are those of one step, all its micro-batches together, unless said. Limits: kMaxPlanStages, kMaxPlanOps,
// kMaxDocumentBytes of text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::wire {

inline constexpr int kMaxPlanStages = 10'000;  // of as many devices, the planner's limit
inline constexpr int kMaxPlanOps = 20'000;
inline constexpr int kMaxPlanMicroBatches = 1'000'000;

// What one replica of a stage does: the figures of its own device and of its own share of the micro-batches.
struct PlanReplica {
  double compute_seconds = 0;
  double codec_seconds = 0;
  double update_seconds = 0;
  int in_flight = 1;
  int64_t memory_bytes = 0;
  bool operator==(const PlanReplica&) const = default;
};

// With several replicas the figures are those of the busiest, in_flight and memory_bytes the largest.
struct PlanStage {
  int index = 0;
  std::vector<std::string> devices;  // one for each replica
  std::vector<std::string> ops;      // names of forward ops, placeholders included; backward ops follow them (autodiff::AssignStages)
  double compute_seconds = 0;        // forward + backward, without codecs
  double forward_seconds = 0;
  double backward_seconds = 0;
  double codec_seconds = 0;  // both directions
  double update_seconds = 0;
  int in_flight = 1;                // micro-batches that may be under way
  int64_t memory_bytes = 0;         // predicted peak
  int64_t device_memory_bytes = 0;  // of its device, the smallest of several; 0: unknown
  double busy_ratio = 0;            // predicted share of the step
  int64_t sync_bytes = 0;           // gradients that its replicas add up
  // Empty with one replica, else one entry for each. `chain`: the replicas in the order in which they add up;
  // `chunk_bytes`: in pieces of so many bytes, which all of them must know alike.
  std::vector<PlanReplica> by_replica;
  std::vector<int> chain;
  int64_t chunk_bytes = 0;
  bool operator==(const PlanStage&) const = default;
};

// One direction between two stages: activations and labels forward, gradients on the way back, either way those of tied parameters.
struct PlanLink {
  std::string src, dst;  // devices
  int src_stage = 0;
  int dst_stage = 0;
  bool backward = false;       // gradients of what the link dst -> src carries
  int64_t dense_bytes = 0;     // of a step, uncompressed; ids and labels as they travel, in as few bytes each as hold them
  int64_t bytes = 0;           // of a step, on the wire
  int64_t tied_bytes = 0;      // of both: gradients of tied parameters, once a step
  std::string codec = "fp32";  // compression::ParseCodecSpec; both directions of a pair have the same
  std::string dtype;           // of what it carries, before the codec: "fp32", "bf16"; "ids": ids and labels alone; empty: unknown
  double ratio = 1;            // dense / wire
  double seconds = 0;          // on the wire, alone, and the latency of one message
  double loss_cost = 0;        // expected increase of the loss, nats per target; on the forward direction
  std::string reason;          // why this codec; on the forward direction; may be empty
  std::vector<std::string> values;
  std::vector<std::string> value_kinds;  // of each value, opdag::Name(ActivationKind); empty in plans of older versions
  bool operator==(const PlanLink&) const = default;
};

// A parameter whose uses lie in several stages; their gradients are exchanged once a step.
struct PlanTied {
  std::string parameter;
  std::vector<int> stages;
  int64_t bytes = 0;           // of the gradient of one use, dense
  double seconds = 0;          // of its slowest message, alone on the wire, with the latency
  int64_t wire_bytes = 0;      // of the longest message: rows of zeros are left out
  std::string codec = "fp32";  // compression::ParseCodecSpec, never top-k; with error feedback if it is lossy
  double loss_cost = 0;        // expected increase of the loss, nats per target
  std::string reason;          // why this codec; may be empty
  bool operator==(const PlanTied&) const = default;
};

// What a user should know before training: a stage without parameters, a device that is nearly idle. It does not keep a job from running.
struct PlanWarning {
  std::string reason;   // CamelCase
  std::string message;  // a sentence, with the remedy where there is one
  bool operator==(const PlanWarning&) const = default;
};

// What no plan can beat, by lib/scheduler/bounds.h.
struct PlanBound {
  std::string name;
  double seconds = 0;  // 0 when it does not hold
  bool holds = false;
  std::string why;
  bool operator==(const PlanBound&) const = default;
};

// What a step would take with micro-batches of another size.
struct PlanMicroBatchSize {
  int64_t size = 1;
  double predicted_step_seconds = 0;  // 0: refused
  std::string refused;                // why; empty: not
  bool operator==(const PlanMicroBatchSize&) const = default;
};

// What the same job would take with no more micro-batches in flight than keep its stages at work (spec.strategy.inFlight).
struct PlanFewerInFlight {
  int in_flight = 1;
  double predicted_step_seconds = 0;
  int64_t memory_bytes = 0;  // of the stage that needs most
  bool operator==(const PlanFewerInFlight&) const = default;
};

struct PlanDocument {
  std::string strategy;
  double predicted_step_seconds = 0;
  double lower_bound_seconds = 0;
  double gap = 0;
  std::vector<PlanBound> lower_bounds;  // lower_bound_seconds is the largest that holds
  int micro_batches = 1;
  int64_t micro_batch_size = 1;
  // The sizes that were weighed, ascending, the chosen among them; empty: the job names its size, or there is no other.
  std::vector<PlanMicroBatchSize> micro_batch_sizes;
  int in_flight = 1;                                 // the largest of the stages'
  std::optional<PlanFewerInFlight> fewer_in_flight;  // where depth takes much memory by choice
  std::string schedule = "1f1b";                     // a name that schedule::Find knows
  std::string recompute = "none";                    // or "full"
  std::string graph_hash;  // 16 hex digits of workload::Workload::graph_hash; an executor with another graph must refuse the plan
  // Pipelines with the same cuts: pipeline d runs on device d of every stage, on the d-th run of a step's micro-batches.
  int replicas = 1;
  std::vector<int> micro_batches_by_replica;  // sum: micro_batches; empty with one
  double sync_seconds = 0;                    // part of the step: adding up the gradients of replicas
  int64_t sync_bytes = 0;                     // that this puts on all links together
  std::vector<PlanStage> stages;
  std::vector<PlanLink> links;
  std::vector<PlanTied> tied;
  // Of the compute seconds: what was priced by the regression of op classes or inferred from other micro-batch sizes, and what by published
  // figures of GPUs instead of a measurement, by how much these two may be off, and the names of those GPUs.
  double fitted_share = 0;
  double specified_share = 0;
  double fitted_relative_error = 0;
  std::vector<std::string> specifications;
  std::vector<std::string> arithmetic;  // of these, in their order: what matrix products are reckoned in, "fp32", "tf32" or "bf16"
  std::vector<std::string> left_out;    // devices without a stage: the backup pool
  double search_cpu_seconds = 0;
  std::vector<std::string> explain;
  // What the step means for the job. Empty and 0 in plans of other builds.
  std::string unit;               // what tokens_per_second counts: "tokens" or "images"
  double tokens_per_second = 0;   // as predicted
  double samples_per_second = 0;  // likewise
  int64_t parameters = 0;         // of the model that are trained; a tied one counts once
  int64_t tokens_per_step = 0;    // of `unit`
  int64_t steps = 0;              // that the job asks for
  int64_t site_bytes = 0;         // from one site to another in a step
  double loss_cost = 0;           // expected increase of the loss by all codecs together, nats per target
  std::string loss_cost_source;   // what says so; empty: nothing is lossy
  std::string bottleneck;         // what limits the step: a sentence
  std::vector<PlanWarning> warnings;
  bool operator==(const PlanDocument&) const = default;

  double TotalSeconds() const { return predicted_step_seconds * static_cast<double>(steps); }

  // The codec of what stage `src_stage` of a replica sends to `dst_stage` and of its gradients: "fp32" for a pair without a link.
  std::string CodecBetween(int src_stage, int dst_stage, int replica = 0) const;
  // Of a replica: its share of the micro-batches, where that begins in a step, and what its stage does.
  int MicroBatchesOf(int replica) const;
  int FirstMicroBatchOf(int replica) const;
  PlanReplica ReplicaOf(int stage, int replica) const;
};

struct Shortfall {
  std::string what;  // "memory_bytes", "executors", ...; empty when nothing is countable
  double needed = 0;
  double available = 0;
  bool operator==(const Shortfall&) const = default;
};

struct PlanErrorDocument {
  std::string reason;  // CamelCase
  std::string message;
  Shortfall shortfall;
  double search_cpu_seconds = 0;
  bool operator==(const PlanErrorDocument&) const = default;
};

using PlanResult = std::variant<PlanDocument, PlanErrorDocument>;

// Numbers must be finite.
std::string PrintPlan(const PlanResult& answer);

// Errors: InvalidArgument naming the field ("plan.stages[1].in_flight: ..."). What is returned is consistent: stages are numbered in order,
// each has ops and a device for each replica, no op stands twice, links join stages that exist and name their devices of one pipeline,
// codecs parse.
absl::StatusOr<PlanResult> ParsePlan(absl::string_view text);

}  // namespace fusionllm::wire
