// Runs one stage of a plan: micro-batches forward and backward, optimizer steps, evaluation. The heart of remote automatic differentiation:
// a stage knows its own ops and the messages at its border, nothing else.
//
// One thread calls Run, Evaluate and the store; Inbox may be filled from any thread and cancelled from any thread, which ends Run early.
//
// A step (docs/design/step.md): m micro-batches, each forward then backward, both in ascending order whatever the schedule; then the use
// gradients of shared parameters are exchanged, every stage reports sums of squares to stage 0, which combines them in the order of
// parameter names and decides; then each stage updates its parameters. Stage 0 finishes its backward pass last, so that round trip mostly
// hides behind it.
//
// Several replicas of all stages share a step (replica_group.h): of the micro-batches of a global batch replica r takes the r-th run, so
// that its data can be read in one piece, and a faster replica a longer one; data, dropout and the weight of a loss are those that one
// replica with all of them would have. Gradients are added on each stage, then replica 0 decides for all; after its update each replica has
// the same bits in parameters and optimizer state, and, as with PyTorch's DistributedDataParallel, replica 0's running statistics, which
// saw its micro-batches alone. Replica 0 evaluates; the others wait for it with their next sums. Who cancels the inbox of a stage must
// abort its communicator too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/collective/communicator.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/optimizer.h"
#include "lib/runtime/device_throttle.h"
#include "lib/runtime/edge_codec.h"
#include "lib/runtime/evaluation_pass.h"
#include "lib/runtime/learning_rate.h"
#include "lib/runtime/message.h"
#include "lib/runtime/op_times.h"
#include "lib/runtime/parameter_store.h"
#include "lib/runtime/stage_program.h"
#include "lib/schedule/pipeline_schedule.h"

namespace fusionllm::runtime {

struct StageConfig {
  int micro_batches = 1;  // of this replica
  int in_flight = 1;      // slots; at least schedule.MinInFlight(micro_batches), at most micro_batches
  schedule::PipelineSchedule schedule = schedule::k1F1B;
  Recompute recompute = Recompute::kNone;
  Reshapes reshapes = Reshapes::kViews;
  kernels::OptimizerConfig optimizer;
  LearningRateSchedule learning_rate;
  double gradient_clip_norm = 0;  // 0: off
  uint64_t seed = 0;
  TiedCodecs tied_codecs;                         // exact for parameters that it does not name
  std::shared_ptr<const CodecLimit> codec_limit;  // of these, as ordered while the stage runs; null: none. Of activations: GuardSettings
  int64_t micro_batch_size = 1;                   // samples; for dropout's sample index
  int64_t evaluate_every = 0;                     // steps; 0: never
  std::optional<int64_t> evaluation_batches;      // global batches at most; absent: the whole set
  int evaluation_window = 0;                      // micro-batches, the same on all stages; 0: EvaluationWindow's
  int replica = 0;                                // which of how many pipelines side by side
  int replicas = 1;
  // Where this replica's run of micro-batches begins in the global batch, and how many that has over all replicas. 0 of those: all
  // replicas have as many as this one.
  int first_micro_batch = 0;
  int batch_micro_batches = 0;
};

// Fills the placeholders (data and labels) of the stage that owns them.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // `step` counts from 1; for an evaluation it counts batches from 0 and `evaluation` is set. `micro_batch` counts from 0 in the global
  // batch, over all replicas. The passes of an evaluation (EvaluationPassAt) are its micro-batches in a row.
  virtual absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) = 0;
  // Samples of the set that evaluations read; nullopt: it has no end.
  virtual std::optional<int64_t> EvaluationSamples() const { return std::nullopt; }
};

// What stage 0 knows after a step.
struct StepResult {
  int64_t step = 0;
  float loss = 0;      // mean over all targets of the global batch that count
  double counted = 1;  // share of its targets that count
  double gradient_norm = 0;
  double learning_rate = 0;
};

// What every stage knows after a step; seconds of this stage's (emulated) device.
struct StageStepTimes {
  int64_t step = 0;
  double busy_seconds = 0;     // running ops, codecs, updates
  double forward_seconds = 0;  // of busy
  double backward_seconds = 0;
  double wait_seconds = 0;      // for messages
  double lateness_seconds = 0;  // the emulated device was late because this machine was busy
};

// Span of the timeline of a step, for `fusionctl trace` and the report. Times on CLOCK_MONOTONIC.
struct TraceSpan {
  enum class Kind : uint8_t { kForward, kBackward, kUpdate, kWait, kEvaluate };
  Kind kind;
  int32_t micro_batch;  // of the whole batch, whichever replica takes it; -1: of none
  int64_t step;
  int64_t begin_ns;
  int64_t end_ns;
};

// Means over all targets that count of all samples, each of which was read once.
struct EvaluationResult {
  double loss = 0;
  std::optional<double> accuracy;  // share of targets whose label had the largest logit; none for a loss that counts no labels
  int64_t samples = 0;
  double counted = 1;  // share of their targets that count
};

struct StageCallbacks {
  // On stage 0 of replica 0, before the decision is sent: may ask for an end after this step and a checkpoint. Called on the stage's
  // thread.
  struct Decision {
    bool stop = false;
    bool checkpoint = false;
  };
  std::function<Decision(const StepResult&)> on_step;
  // On every stage, when a step begins. On stage 0 the evaluation before it has ended on all stages by then; others begin to wait for the
  // step while it goes on.
  std::function<void(int64_t step)> on_step_begin;
  // On every stage, after its update.
  std::function<void(const StageStepTimes&)> on_stage_step;
  // On every stage of every replica when the decision asks for a checkpoint of the state after `step`. Parameters and optimizer state are
  // the same on all replicas, so one of them has to write; residuals are each replica's own.
  std::function<absl::Status(int64_t step)> on_checkpoint;
  // On the stage of replica 0 that owns the loss, after the evaluation that follows `step`.
  std::function<void(int64_t step, const EvaluationResult&)> on_evaluation;
  std::function<void(const TraceSpan&)> on_span;
  // All of them may be empty.
};

class StageExecutor {
 public:
  // `training` typed for config.micro_batch_size; it, the backend, port, inbox, source and throttle must outlive the executor.
  // `codecs`: one for each cut edge of the program, see EdgeCodec. `replicas`: this stage's in all pipelines, with tensors of the back
  // end's memory; null where there is one; must outlive the executor. Errors: what BuildStageProgram, Backend::Prepare and
  // ReplicaGroup::Create say.
  static absl::StatusOr<std::unique_ptr<StageExecutor>> Create(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op,
                                                               int stage, int stages, const StageConfig& config, EdgeCodecPtr codecs,
                                                               kernels::Backend& backend, MessagePort& port, Inbox& inbox,
                                                               BatchSource& source, DeviceThrottle& throttle, StageCallbacks callbacks,
                                                               collective::Communicator* replicas = nullptr);
  ~StageExecutor();

  ParameterStore& store();
  // The store's, and the residuals': before a checkpoint is written, and after one was read.
  absl::Status PullToHost();
  absl::Status PushToDevice();
  const StageProgram& program() const;
  StageMemory memory() const;
  // Wire bytes of encoded messages handed to the port since creation, by receiving stage.
  std::vector<int64_t> sent_bytes() const;
  // How often a stretch of ops was asked for by one call of the device, as recorded before (kernels::CapturedGraph).
  int64_t replays() const;

  // By receiving stage.
  std::map<int, LinkCompression> compression() const;

  // What error feedback carries from one message to the next, one tensor for each cut edge that has it: part of a checkpoint, as parameters
  // and optimizer state are. A name tells the edge whatever the stages are: "residual:PRODUCER:OUTPUT->FIRST READER:SHAPE", the reader
  // being the first op on the other side; so a cut in the same place on other stages finds its residual again, another does not. Also one
  // for each use of a shared parameter whose gradients are compressed: "residual:PARAMETER@OP".
  const std::vector<std::string>& residual_names() const;
  // Zero before the first message. `name`: one of residual_names(). On a device: what was there at the last PullToHost; what is written to
  // it counts after PushToDevice.
  tensor::TensorView residual(const std::string& name);

  // Times every op of the stage, placeholders included, while micro-batches go through all slots as in training: caches are as warm or
  // cold as they will be; views take 0 s. Gives the times to the throttle and returns them, ascending by op. Data comes from the source;
  // what other stages would send is zero. Parameters stay as they were, gradients do not. The caller makes sure that nothing else runs on
  // the machine meanwhile. Errors: kernels' and the source's; Cancelled.
  absl::StatusOr<std::vector<OpTime>> MeasureOps(const MeasureOptions& options);

  // Runs steps first..last (counted from 1), and evaluates after every config.evaluate_every-th and after `last`; returns the last step
  // done: `last`, or earlier when a decision said stop. Errors: Cancelled/Unavailable from the inbox or port; NotFiniteError (not_finite.h)
  // "the loss of op 'loss' is nan at step 12 ..." on the stage of the loss; on the owner of the first gradient that is not finite where the
  // loss is, naming parameter and op; on a sender whose codec cannot carry a value (the parameters keep the values before the step, the
  // other stages wait to be cancelled; of a gradient replica 0 tells, the others wait too); the communicator's, kernels' and the source's
  // errors.
  absl::StatusOr<int64_t> Run(int64_t first, int64_t last);

  // Forward passes over the set of the source, or its first `batches` global batches where they are given, by this replica alone; every
  // stage of it must call it at the same point. `step` names the messages. The result is meaningful on the stage that owns the loss.
  // Errors: as Run's; FailedPrecondition where the set ends nowhere and no batches are given.
  absl::StatusOr<EvaluationResult> Evaluate(int64_t step, std::optional<int64_t> batches);

 private:
  class Impl;
  explicit StageExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace fusionllm::runtime
