// A plan: which stage runs on which device, in how many micro-batches, with which codecs, and what a step is expected to take. The one type
// for it: the planner answers with it, documents hold it (lib/wire/plan_json.h), brokers and executors act on it, reports show it.
//
// Plain data, comparable with ==, self-contained: devices and ops by name, codecs, schedules and kinds in their text form. Seconds and
// bytes are those of one step, all its micro-batches together, unless said. Nothing here checks: who takes a plan from outside reads it
// with wire::ParsePlan, which promises what the functions below rely on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace fusionllm::plan {

// What one replica of a stage does: the figures of its own device and of its own share of the micro-batches.
struct Replica {
  double compute_seconds = 0;
  double codec_seconds = 0;
  double update_seconds = 0;
  int in_flight = 1;
  int64_t memory_bytes = 0;
  bool operator==(const Replica&) const = default;

  double BusySeconds() const { return compute_seconds + codec_seconds + update_seconds; }
};

// With several replicas the figures are those of the busiest, in_flight and memory_bytes the largest.
struct Stage {
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
  std::vector<Replica> by_replica;
  std::vector<int> chain;
  int64_t chunk_bytes = 0;
  bool operator==(const Stage&) const = default;

  double BusySeconds() const { return compute_seconds + codec_seconds + update_seconds; }
};

// One direction between two stages: activations and labels forward, gradients on the way back, either way those of tied parameters.
struct Link {
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
  bool operator==(const Link&) const = default;
};

// A parameter whose uses lie in several stages; their gradients are exchanged once a step.
struct TiedParameter {
  std::string parameter;
  std::vector<int> stages;
  int64_t bytes = 0;           // of the gradient of one use, dense
  double seconds = 0;          // of its slowest message, alone on the wire, with the latency
  int64_t wire_bytes = 0;      // of the longest message: rows of zeros are left out
  std::string codec = "fp32";  // compression::ParseCodecSpec, never top-k; with error feedback if it is lossy
  double loss_cost = 0;        // expected increase of the loss, nats per target
  std::string reason;          // why this codec; may be empty
  bool operator==(const TiedParameter&) const = default;
};

// What a user should know before training: a stage without parameters, a device that is nearly idle. It does not keep a job from running.
struct Warning {
  std::string reason;   // CamelCase
  std::string message;  // a sentence, with the remedy where there is one
  bool operator==(const Warning&) const = default;
};

// A time that no plan of the job can beat, and why; lib/scheduler/bounds.h lists them by name.
struct LowerBound {
  std::string name;
  double seconds = 0;  // of a step; 0 when it does not hold
  bool holds = false;
  std::string why;  // it holds, or does not
  bool operator==(const LowerBound&) const = default;
};

// What a step would take with micro-batches of another size.
struct MicroBatchSize {
  int64_t size = 1;
  double predicted_step_seconds = 0;  // 0: refused
  std::string refused;                // why; empty: not
  bool operator==(const MicroBatchSize&) const = default;
};

// What the same job would take with no more micro-batches in flight than keep its stages at work (spec.strategy.inFlight).
struct FewerInFlight {
  int in_flight = 1;
  double predicted_step_seconds = 0;
  int64_t memory_bytes = 0;  // of the stage that needs most
  bool operator==(const FewerInFlight&) const = default;
};

struct Plan {
  std::string strategy;
  double predicted_step_seconds = 0;
  double lower_bound_seconds = 0;
  double gap = 0;                        // predicted / lower bound - 1
  std::vector<LowerBound> lower_bounds;  // lower_bound_seconds is the largest that holds
  int micro_batches = 1;
  int64_t micro_batch_size = 1;
  // The sizes that were weighed, ascending, the chosen among them; empty: the job names its size, or there is no other.
  std::vector<MicroBatchSize> micro_batch_sizes;
  int in_flight = 1;                             // the largest of the stages'
  std::optional<FewerInFlight> fewer_in_flight;  // where depth takes much memory by choice
  std::string schedule = "1f1b";                 // a name that schedule::Find knows
  std::string recompute = "none";                // or "full"
  std::string graph_hash;  // 16 hex digits of workload::Workload::graph_hash; an executor with another graph must refuse the plan
  // Pipelines with the same cuts: pipeline d runs on device d of every stage, on the d-th run of a step's micro-batches.
  int replicas = 1;
  std::vector<int> micro_batches_by_replica;  // sum: micro_batches; empty with one
  double sync_seconds = 0;                    // part of the step: adding up the gradients of replicas
  int64_t sync_bytes = 0;                     // that this puts on all links together
  std::vector<Stage> stages;                  // in pipeline order
  std::vector<Link> links;
  std::vector<TiedParameter> tied;
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
  std::vector<Warning> warnings;
  bool operator==(const Plan&) const = default;

  double TotalSeconds() const { return predicted_step_seconds * static_cast<double>(steps); }

  // The codec of what stage `src_stage` of a replica sends to `dst_stage` and of its gradients: "fp32" for a pair without a link.
  std::string CodecBetween(int src_stage, int dst_stage, int replica = 0) const;
  // Of a replica that the plan has: its share of the micro-batches, where that begins in a step, and what its stage does.
  int MicroBatchesOf(int replica) const;
  int FirstMicroBatchOf(int replica) const;
  Replica ReplicaOf(int stage, int replica) const;
};

// How much is missing of what; `what` is "memory_bytes", "egress_bytes", "executors", "ops", "simulations" or "" when nothing is countable.
struct Shortfall {
  std::string what;
  double needed = 0;
  double available = 0;
  bool operator==(const Shortfall&) const = default;
};

// Why there is no plan: a machine reason (lib/scheduler/plan_error_reasons.h) and a sentence.
struct PlanError {
  std::string reason;  // CamelCase
  std::string message;
  Shortfall shortfall;
  double search_cpu_seconds = 0;
  bool operator==(const PlanError&) const = default;
};

using PlanResult = std::variant<Plan, PlanError>;

}  // namespace fusionllm::plan
