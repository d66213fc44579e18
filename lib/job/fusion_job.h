// FusionJob: what a user asks for, as plain values, in the order of the YAML (`apiVersion: fusionllm.io/v1alpha1`, `kind: FusionJob`).
//
// docs/reference/job-reference.md describes every field; it is generated from fusion_job_fields.h. Read with parse.h. A job that came out
// of ParseFusionJob is valid: within bounds, consistent, defaults filled in. std::optional means that absence says something of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/compression/guard_mode.h"
#include "lib/data/config.h"
#include "lib/job/codec_choice.h"
#include "lib/job/schema.h"
#include "lib/job/units.h"
#include "lib/models/families.h"

namespace fusionllm::job {

using DataKind = data::DatasetKind;
using data::IsOfTokens;  // a sample of tokens is spec.training.sequenceLength long
enum class TextEncoding { kUtf8, kBytes };
enum class Split { kEven, kEnd };  // which samples a fraction holds out
enum class TokenDtype { kAuto, kUint16, kUint32 };
enum class OptimizerName { kAdamw, kSgd };
enum class ScheduleName { kConstant, kCosine, kLinear };
enum class Precision { kFp32, kBf16 };
enum class Recompute { kNone, kAuto, kFull };
enum class Planner { kOpFence, kEqualOps, kEqualCompute, kDtFm, kExact };
enum class PipelineSchedule { kAuto, kGpipe, k1f1b };
enum class Backend { kCpu, kRef };
enum class CompressionPolicy { kNone, kUniform, kAdatopk };
enum class FailureAction { kFailJob, kRestartJob, kRestartJobAndIgnoreMaxRestarts, kRestartExecutor, kIgnore, kReplaceCluster };
enum class NetworkMode { kAuto, kDirect, kNodePort, kLoadBalancer, kRelay };  // auto: direct in one cluster, by relay in several
enum class CleanPodPolicy { kRunning, kAll, kNone };
enum class Shards { kSite, kBroker };                   // where executors of other clusters leave their part of a checkpoint
enum class Spread { kAuto, kEven, kPacked, kFastest };  // of executors over clusters

// Spares included: the index in an executor's name has four digits.
inline constexpr int64_t kMaxExecutors = 10'000;

struct Metadata {
  std::string name;
  std::string name_space;  // metadata.namespace; empty: not given
  RawExtension labels;
  RawExtension annotations;
  bool operator==(const Metadata&) const = default;
};

// The text form of an OP-DAG: exactly one is given.
struct GraphSource {
  std::optional<std::string> file;
  std::optional<std::string> inline_text;
  RawExtension volume;  // holds file
  bool operator==(const GraphSource&) const = default;
};

struct Init {
  int64_t seed = 1;
  std::optional<std::string> from;  // a checkpoint folder or a .safetensors file
  std::vector<std::string> ignore;  // patterns over names of its tensors
  std::vector<std::string> skip;    // patterns over names of the model's parameters, which begin fresh
  bool operator==(const Init&) const = default;
};

struct Model {
  std::optional<models::FamilyName> family;  // exactly one of family and graph
  std::optional<std::string> preset;
  models::ModelSettings config;  // overrides of the preset, of the family's own fields alone; model_config.h resolves them
  std::optional<GraphSource> graph;
  Init init;
  bool operator==(const Model&) const = default;
};

// Exactly one is given.
struct Validation {
  std::vector<std::string> path;
  std::optional<double> fraction;  // in (0, 1), of the training data
  std::optional<Split> split;      // absent: data_rules.h
  bool operator==(const Validation&) const = default;
};

struct Shapes {
  int64_t samples = 10000;
  int64_t image_size = 32;  // pixels, width and height
  int64_t num_classes = 10;
  int64_t seed = 1;
  bool operator==(const Shapes&) const = default;
};

struct Data {
  DataKind kind = DataKind::kText;
  std::vector<std::string> path;         // files or folders; not for shapes
  std::optional<TextEncoding> encoding;  // absent: data_rules.h
  TokenDtype token_dtype = TokenDtype::kAuto;
  std::optional<Validation> validation;
  Shapes shapes;
  RawExtension volume;
  std::vector<std::string> clusters;  // members that can reach the data; empty: all
  bool operator==(const Data&) const = default;
};

struct Optimizer {
  OptimizerName name = OptimizerName::kAdamw;
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adamw
  double momentum = 0;                                // sgd
  bool nesterov = false;                              // sgd
  double weight_decay = 0.01;                         // sgd: 0 unless given
  bool operator==(const Optimizer&) const = default;
};

struct Schedule {
  ScheduleName name = ScheduleName::kConstant;
  int64_t warmup_steps = 0;
  double min_learning_rate = 0;
  bool operator==(const Schedule&) const = default;
};

struct Evaluation {
  int64_t every_steps = 0;         // 0: no evaluation
  std::optional<int64_t> batches;  // global batches at most; absent: the whole set
  bool operator==(const Evaluation&) const = default;
};

struct Training {
  int64_t steps = 100;
  int64_t global_batch_size = 32;
  int64_t micro_batch_size = 0;  // 0: auto
  int64_t sequence_length = 256;
  Optimizer optimizer;
  Schedule schedule;
  double gradient_clip_norm = 0;  // 0: off
  Precision precision = Precision::kFp32;
  Recompute recompute = Recompute::kNone;
  int64_t seed = 1337;
  Evaluation evaluation;
  bool operator==(const Training&) const = default;
};

struct Pin {
  std::string ops;  // a pattern over op names: "block.0.*"
  std::string device;
  bool operator==(const Pin&) const = default;
};

struct Strategy {
  Planner planner = Planner::kOpFence;
  int64_t stages = 0;    // 0: the planner decides
  int64_t replicas = 1;  // pipelines side by side; 0: the planner decides
  PipelineSchedule pipeline_schedule = PipelineSchedule::kAuto;
  int64_t in_flight = 0;  // micro-batches in flight; 0: the planner decides
  Backend backend = Backend::kCpu;
  std::vector<Pin> pins;
  std::vector<std::string> exclude;
  // That a plan must have to be what was asked for: as many stages as are named, in each of as many replicas.
  int64_t MinExecutors() const { return std::max<int64_t>(1, stages) * std::max<int64_t>(1, replicas); }
  bool operator==(const Strategy&) const = default;
};

struct Compression {
  CompressionPolicy policy = CompressionPolicy::kNone;
  Codec codec;
  Codec limit;                      // of codec auto; auto: all levels
  double ratio = 100;               // topk: size / kept; the most that any link may use
  double max_loss_increase = 0.05;  // nats per target, all links together; where the codec is chosen
  TopkValues topk_values;
  bool error_feedback = false;
  TiedGradients tied_gradients;  // of parameters that several stages use
  compression::GuardMode guard = compression::GuardMode::kAuto;
  bool operator==(const Compression&) const = default;
};

// Where copies of checkpoints go besides.
struct Replica {
  std::string path;         // a folder or a URI
  int64_t every_steps = 0;  // 0: each checkpoint
  RawExtension volume;
  bool operator==(const Replica&) const = default;
};

struct Checkpoint {
  std::string path = "checkpoints/";
  int64_t every_steps = 100;    // 0: only the last step
  int64_t keep = 3;             // 0: all
  std::string resume = "auto";  // auto | never | PATH
  std::optional<Replica> replica;
  RawExtension volume;
  Shards shards = Shards::kSite;
  bool operator==(const Checkpoint&) const = default;
};

struct Executors {
  std::optional<int64_t> replicas;  // absent: as many as there are
  int64_t min = 1;
  std::optional<int64_t> max;  // absent: all there are
  int64_t spares = 0;
  int64_t threads = 0;  // of one executor; 0: what its device has
  int64_t stabilization_seconds = 300;
  int64_t broker_lost_timeout_seconds = 3600;
  RawExtension pod_template;  // "template"
  bool operator==(const Executors&) const = default;
};

struct PlacementCluster {
  std::string name;
  int64_t min = 0;
  std::optional<int64_t> max;
  bool operator==(const PlacementCluster&) const = default;
};

struct Placement {
  std::string device = "any";
  std::vector<PlacementCluster> clusters;
  RawExtension cluster_selector;
  Spread spread = Spread::kAuto;
  std::optional<ByteSize> min_memory;
  std::optional<int64_t> max_egress_bytes_per_step;
  bool operator==(const Placement&) const = default;
};

// One rule for what went wrong: it holds when the exit code or the reason is among those given, or when neither is given.
struct FailureRule {
  std::string name;
  FailureAction action = FailureAction::kRestartJob;
  std::vector<int64_t> on_exit_codes;
  std::vector<std::string> on_reasons;
  bool operator==(const FailureRule&) const = default;
};

struct FailurePolicy {
  int64_t max_restarts = 3;
  std::vector<FailureRule> rules;  // the first that holds decides; none: the executor is restarted, and that counts
  bool operator==(const FailurePolicy&) const = default;
};

// How executors of different clusters reach each other.
struct Network {
  NetworkMode mode = NetworkMode::kAuto;
  int64_t port = 7000;
  std::optional<std::string> address;  // absent: chosen
  bool operator==(const Network&) const = default;
};

// The process that leads the job's executors.
struct BrokerSettings {
  RawExtension volume;
  RawExtension pod_template;  // "template"
  bool operator==(const BrokerSettings&) const = default;
};

struct ObjectStore {
  std::optional<std::string> secret_name;
  bool operator==(const ObjectStore&) const = default;
};

struct Spec {
  Model model;
  Data data;
  Training training;
  Strategy strategy;
  Compression compression;
  std::optional<Checkpoint> checkpoint;  // absent: no checkpoints
  Executors executors;
  Placement placement;
  // Kubernetes only.
  bool suspend = false;
  std::optional<std::string> managed_by;
  std::optional<std::string> queue_name;
  FailurePolicy failure_policy;
  std::optional<int64_t> active_deadline_seconds;
  std::optional<int64_t> pending_deadline_seconds;
  std::optional<int64_t> ttl_seconds_after_finished;
  CleanPodPolicy clean_pod_policy = CleanPodPolicy::kRunning;
  int64_t force_delete_after_seconds = 300;  // 0: never
  bool preserve_resources_on_deletion = false;
  Network network;
  BrokerSettings broker;
  std::optional<ObjectStore> object_store;
  bool operator==(const Spec&) const = default;
};

struct FusionJob {
  Metadata metadata;
  Spec spec;
  bool operator==(const FusionJob&) const = default;
};

FUSIONLLM_JOB_ENUM(DataKind, {"text", E::kText}, {"tokens", E::kTokens}, {"cifar10", E::kCifar10}, {"idx", E::kIdx},
                   {"shapes", E::kShapes});
FUSIONLLM_JOB_ENUM(TextEncoding, {"utf-8", E::kUtf8}, {"bytes", E::kBytes});
FUSIONLLM_JOB_ENUM(Split, {"even", E::kEven}, {"end", E::kEnd});
FUSIONLLM_JOB_ENUM(TokenDtype, {"auto", E::kAuto}, {"uint16", E::kUint16}, {"uint32", E::kUint32});
FUSIONLLM_JOB_ENUM(OptimizerName, {"adamw", E::kAdamw}, {"sgd", E::kSgd});
FUSIONLLM_JOB_ENUM(ScheduleName, {"cosine", E::kCosine}, {"linear", E::kLinear}, {"constant", E::kConstant});
FUSIONLLM_JOB_ENUM(Precision, {"fp32", E::kFp32}, {"bf16", E::kBf16});
FUSIONLLM_JOB_ENUM(Recompute, {"none", E::kNone}, {"auto", E::kAuto}, {"full", E::kFull});
FUSIONLLM_JOB_ENUM(Planner, {"op-fence", E::kOpFence}, {"equal-ops", E::kEqualOps}, {"equal-compute", E::kEqualCompute},
                   {"dt-fm", E::kDtFm}, {"exact", E::kExact});
FUSIONLLM_JOB_ENUM(PipelineSchedule, {"auto", E::kAuto}, {"gpipe", E::kGpipe}, {"1f1b", E::k1f1b});
FUSIONLLM_JOB_ENUM(Backend, {"cpu", E::kCpu}, {"ref", E::kRef});
FUSIONLLM_JOB_ENUM(CompressionPolicy, {"none", E::kNone}, {"uniform", E::kUniform}, {"adatopk", E::kAdatopk});
FUSIONLLM_JOB_ENUM(compression::GuardMode, {"auto", E::kAuto}, {"warn", E::kWarn}, {"none", E::kNone});
FUSIONLLM_JOB_ENUM(FailureAction, {"FailJob", E::kFailJob}, {"RestartJob", E::kRestartJob},
                   {"RestartJobAndIgnoreMaxRestarts", E::kRestartJobAndIgnoreMaxRestarts}, {"RestartExecutor", E::kRestartExecutor},
                   {"Ignore", E::kIgnore}, {"ReplaceCluster", E::kReplaceCluster});
FUSIONLLM_JOB_ENUM(Shards, {"Site", E::kSite}, {"Broker", E::kBroker});
FUSIONLLM_JOB_ENUM(NetworkMode, {"Auto", E::kAuto}, {"Direct", E::kDirect}, {"NodePort", E::kNodePort}, {"LoadBalancer", E::kLoadBalancer},
                   {"Relay", E::kRelay});
FUSIONLLM_JOB_ENUM(Spread, {"Auto", E::kAuto}, {"Even", E::kEven}, {"Packed", E::kPacked}, {"Fastest", E::kFastest});
FUSIONLLM_JOB_ENUM(CleanPodPolicy, {"Running", E::kRunning}, {"All", E::kAll}, {"None", E::kNone});

}  // namespace fusionllm::job
