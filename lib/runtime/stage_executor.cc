#include "lib/runtime/stage_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/target_weights.h"
#include "lib/runtime/not_finite.h"
#include "lib/runtime/pass_runner.h"
#include "lib/runtime/replica_group.h"
#include "lib/runtime/step_coordinator.h"
#include "lib/runtime/step_losses.h"
#include "lib/runtime/target_weights.h"

namespace fusionllm::runtime {
namespace {

using tensor::TensorView;

constexpr char kLossGradientRole[] = "loss_gradient";

// The sign of a NaN means nothing and is not reported.
const char* Spelled(double not_finite) { return std::isnan(not_finite) ? "nan" : not_finite > 0 ? "inf" : "-inf"; }

}  // namespace

class StageExecutor::Impl {
 public:
  Impl(const autodiff::TrainingGraph& training, StageProgram program, const StageConfig& config, EdgeCodecPtr codecs, Inbox& inbox,
       BatchSource& source, DeviceThrottle& throttle, StageCallbacks callbacks, const std::vector<int>& stage_of_op)
      : training_(training),
        program_(std::move(program)),
        config_(config),
        codecs_(std::move(codecs)),
        inbox_(inbox),
        source_(source),
        target_weights_(training, source),
        throttle_(throttle),
        callbacks_(std::move(callbacks)),
        evaluation_source_(LowestReader(training, stage_of_op)),
        evaluation_window_(config.evaluation_window > 0 ? config.evaluation_window
                                                        : EvaluationWindow(training, stage_of_op, program_.stages)),
        target_figures_(autodiff::TargetStatistics(training)) {}

  absl::Status Prepare(kernels::Backend& backend, MessagePort& port, collective::Communicator* replicas) {
    FUSIONLLM_ASSIGN_OR_RETURN(store_, ParameterStore::Create(training_, program_, config_.optimizer, backend));
    FUSIONLLM_ASSIGN_OR_RETURN(
        replicas_, ReplicaGroup::Create(training_, program_, *store_, backend.memory(), config_.replica, config_.replicas, replicas));
    coordinator_.emplace(training_, program_, config_.tied_codecs, config_.codec_limit, *store_, port, inbox_);
    FUSIONLLM_ASSIGN_OR_RETURN(
        runner_,
        PassRunner::Create(training_, program_, config_.in_flight, *store_, backend, *codecs_, port, inbox_, throttle_,
                           [this](const PassContext& context, const opdag::Op& op, TensorView out) { return Fill(context, op, out); }));
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Run(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      if (callbacks_.on_step_begin) callbacks_.on_step_begin(step);
      FUSIONLLM_ASSIGN_OR_RETURN(const StepDecision decision, RunStep(step));
      // A failure while evaluating loses no steps.
      if (decision.checkpoint && callbacks_.on_checkpoint) FUSIONLLM_RETURN_IF_ERROR(callbacks_.on_checkpoint(step));
      const bool evaluates = config_.evaluate_every > 0 && (step % config_.evaluate_every == 0 || step == last);
      if (evaluates && config_.replica == 0) {
        FUSIONLLM_ASSIGN_OR_RETURN(const EvaluationResult result, Evaluate(step, config_.evaluation_batches));
        if (program_.owns_loss && callbacks_.on_evaluation) callbacks_.on_evaluation(step, result);
        FUSIONLLM_RETURN_IF_ERROR(coordinator_->EndEvaluation(step));
      }
      if (decision.stop) return step;
    }
    return last;
  }

  absl::StatusOr<EvaluationResult> Evaluate(int64_t step, std::optional<int64_t> batches) {
    const int64_t size = config_.micro_batch_size;
    int64_t samples = 0;
    if (evaluation_source_ < 0 || evaluation_source_ == program_.stage) {
      FUSIONLLM_ASSIGN_OR_RETURN(samples, SamplesToEvaluate(source_.EvaluationSamples(), batches, GlobalMicroBatches() * size));
    }
    if (evaluation_source_ >= 0 && program_.stages > 1) {
      FUSIONLLM_ASSIGN_OR_RETURN(samples, coordinator_->ShareEvaluationSize(step, evaluation_source_, samples));
    }
    evaluated_samples_ = samples;
    LossSums sums;
    double correct = 0;
    for (int i = 0;; ++i) {
      const std::optional<EvaluationPass> pass = EvaluationPassAt(samples, size, i);
      if (!pass.has_value()) break;
      PassContext context{.kind = MessageKind::kEvaluation, .step = step, .micro_batch = i, .mode = kernels::Mode::kEvaluate};
      FUSIONLLM_RETURN_IF_ERROR(coordinator_->AwaitEvaluationWindow(step, i, evaluation_window_));
      FUSIONLLM_RETURN_IF_ERROR(runner_->Run(program_.evaluate, context).status());
      FUSIONLLM_RETURN_IF_ERROR(coordinator_->EndEvaluationWindow(step, i, evaluation_window_, samples, size));
      if (!program_.owns_loss) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const EvaluatedMicroBatch evaluated, EvaluatedOf(training_, [this](opdag::ValueId value) {
                                   return runner_->ScalarAfter(program_.evaluate, value, 0);
                                 }));
      // Micro-batches of samples that no other one has.
      const double weight = static_cast<double>(pass->samples) / static_cast<double>(size);
      const double counted = weight * evaluated.counted;
      sums.loss += (training_.counted == opdag::kNone ? weight : counted) * evaluated.loss;
      sums.counted += counted;
      correct += weight * evaluated.correct;
    }
    FUSIONLLM_RETURN_IF_ERROR(runner_->FinishSends());
    const double micro_batches = static_cast<double>(samples) / static_cast<double>(size);
    EvaluationResult result{.loss = MeanLoss(training_, sums, micro_batches), .samples = samples};
    if (samples > 0) result.counted = sums.counted / micro_batches;
    if (training_.target_ops.size() == 1 && sums.counted > 0) result.accuracy = correct / (TargetsOf(training_) * sums.counted);
    return result;
  }

  // The first op of `stage` that reads the value: it has one, or the value would not be sent there.
  const opdag::Op& FirstReader(opdag::ValueId value, int stage, const std::vector<int>& stage_of_op) const {
    int op = 0;
    const auto reads = [&](const opdag::Op& candidate) {
      return std::find(candidate.inputs.begin(), candidate.inputs.end(), value) != candidate.inputs.end();
    };
    while (stage_of_op[op] != stage || !reads(training_.graph.op(op))) ++op;
    return training_.graph.op(op);
  }

  void NameResiduals(const std::vector<int>& stage_of_op) {
    for (const ProgramOp& program_op : program_.forward.ops) {
      for (const CutEdge& edge : program_op.sends) {
        const opdag::Value& value = training_.graph.value(edge.value);
        if (!tensor::IsFloating(value.type.dtype) || codecs_->Residual(edge) == nullptr) continue;
        const opdag::Op& producer = training_.graph.op(value.producer);
        const auto output = std::find(producer.outputs.begin(), producer.outputs.end(), edge.value) - producer.outputs.begin();
        residual_names_.push_back(absl::StrFormat("residual:%s:%d->%s:%s", producer.name, output,
                                                  FirstReader(edge.value, edge.peer, stage_of_op).name,
                                                  absl::StrJoin(value.type.shape.dims(), "x")));
        residual_edges_.push_back(edge);
      }
    }
    const std::vector<std::string> of_shared = coordinator_->ResidualNames();
    residual_names_.insert(residual_names_.end(), of_shared.begin(), of_shared.end());
  }

  const std::vector<std::string>& residual_names() const { return residual_names_; }
  TensorView residual(const std::string& name) {
    const auto index = static_cast<size_t>(std::find(residual_names_.begin(), residual_names_.end(), name) - residual_names_.begin());
    if (index >= residual_edges_.size()) return coordinator_->Residual(name);
    const CutEdge& edge = residual_edges_[index];
    const tensor::TensorType type = {tensor::DType::kF32, training_.graph.value(edge.value).type.shape};  // whatever the value is
    std::vector<float>& residual = *codecs_->Residual(edge);
    residual.resize(static_cast<size_t>(type.elements()));
    return {type, reinterpret_cast<std::byte*>(residual.data())};
  }
  std::map<int, LinkCompression> compression() const { return codecs_->Compression(); }

  absl::StatusOr<std::vector<OpTime>> MeasureOps(const MeasureOptions& options) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<OpTime> times, runner_->Measure(options));
    std::vector<double> seconds(training_.graph.ops().size(), -1);
    for (const OpTime& time : times) seconds[time.op] = time.seconds;
    throttle_.SetSeconds(std::move(seconds), options.thread_cpu);
    return times;
  }

  absl::Status PullToHost() {
    FUSIONLLM_RETURN_IF_ERROR(store_->PullToHost());
    return codecs_->PullResiduals();
  }
  absl::Status PushToDevice() {
    FUSIONLLM_RETURN_IF_ERROR(store_->PushToDevice());
    return codecs_->PushResiduals();
  }

  ParameterStore& store() { return *store_; }
  const StageProgram& program() const { return program_; }
  PassRunner& runner() { return *runner_; }
  StageMemory memory() const {
    return MemoryOf(program_, training_, config_.in_flight, static_cast<int>(kernels::StateNames(config_.optimizer).size()));
  }

 private:
  absl::Status Fill(const PassContext& context, const opdag::Op& op, TensorView out) {
    if (op.attributes.Text("role") == kLossGradientRole) {
      *out.f32() = 1.0f / static_cast<float>(GlobalMicroBatches());
      return absl::OkStatus();
    }
    const bool evaluates = context.kind == MessageKind::kEvaluation;
    if (op.attributes.Text("role") == opdag::kTargetWeightRole) {
      FUSIONLLM_ASSIGN_OR_RETURN(*out.f32(), evaluates ? target_weights_.OfEvaluation(op, evaluated_samples_, GlobalMicroBatches())
                                                       : target_weights_.OfStep(op, context.step, GlobalMicroBatches()));
      return absl::OkStatus();
    }
    if (evaluates) {
      return source_.Fill(true, context.micro_batch / GlobalMicroBatches(), context.micro_batch % GlobalMicroBatches(), op, out);
    }
    return source_.Fill(false, context.step, GlobalIndex(context.micro_batch), op, out);
  }

  int GlobalMicroBatches() const {
    return config_.batch_micro_batches > 0 ? config_.batch_micro_batches : config_.replicas * config_.micro_batches;
  }
  // Of one of this replica's micro-batches in the global batch.
  int GlobalIndex(int micro_batch) const {
    const int first = config_.batch_micro_batches > 0 ? config_.first_micro_batch : config_.replica * config_.micro_batches;
    return first + micro_batch;
  }

  PassContext ContextOf(int64_t step, int micro_batch, bool at_once = false) const {
    return {.step = step,
            .micro_batch = micro_batch,
            .slot = micro_batch % config_.in_flight,
            .accumulate = micro_batch > 0,
            .random = {.seed = config_.seed, .step = step, .first_sample = GlobalIndex(micro_batch) * config_.micro_batch_size},
            .at_once = at_once,
            // The first of several writes gradients that the others add to, which takes less.
            .learn_times = micro_batch > 0 || config_.micro_batches == 1};
  }

  // Runs the next pass of the schedule; blocks until its inputs are there.
  absl::Status RunNextPass(int64_t step, schedule::Progress& progress) {
    bool at_once = progress.forwards > 0;  // the first pass of a step waits for the decision on the last one
    const auto forward_ready = [&] { return inbox_.HasAll(runner_->Awaited(program_.forward, ContextOf(step, progress.forwards))); };
    const auto backward_ready = [&] { return inbox_.HasAll(runner_->Awaited(program_.backward, ContextOf(step, progress.backwards))); };
    while (true) {
      const uint64_t seen = inbox_.deliveries();
      const std::optional<schedule::Pass> next =
          config_.schedule.Next(progress, config_.micro_batches, config_.in_flight, forward_ready, backward_ready);
      if (next == schedule::Pass::kForward) {
        const int micro_batch = progress.forwards;
        progress.Begin(*next);
        progress.forwards_done = progress.forwards;
        return RunForward(step, micro_batch, at_once);
      }
      if (next == schedule::Pass::kBackward) {
        const int micro_batch = progress.backwards;
        progress.Begin(*next);
        return RunBackward(step, micro_batch, at_once);
      }
      const int64_t begin = MonotonicNanoseconds();
      at_once = false;
      FUSIONLLM_RETURN_IF_ERROR(inbox_.WaitForDelivery(seen));
      Trace(TraceSpan::Kind::kWait, -1, step, begin);
      times_.wait_seconds += static_cast<double>(MonotonicNanoseconds() - begin) * 1e-9;
    }
  }

  // Looks at the losses of micro-batches up to `last`, which a device may only now have.
  absl::Status SettleLosses(int64_t step, int last) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::optional<StepLosses::NotFinite> spoilt, losses_.Settle(last));
    return spoilt.has_value() ? LossNotFinite(step, spoilt->micro_batch, spoilt->loss) : absl::OkStatus();
  }

  absl::Status RunForward(int64_t step, int micro_batch, bool at_once) {
    const int64_t begin = MonotonicNanoseconds();
    // Of a NaN or infinite loss the slot still shows where it began, until another micro-batch takes it.
    FUSIONLLM_RETURN_IF_ERROR(SettleLosses(step, micro_batch - config_.in_flight));
    FUSIONLLM_ASSIGN_OR_RETURN(const double seconds, runner_->Run(program_.forward, ContextOf(step, micro_batch, at_once)));
    times_.forward_seconds += seconds;
    if (program_.owns_loss) {
      const int slot = micro_batch % config_.in_flight;
      FUSIONLLM_ASSIGN_OR_RETURN(auto loss, runner_->ScalarAfter(program_.forward, training_.graph.loss(), slot));
      std::vector<std::unique_ptr<tensor::PendingCopy>> counted;
      for (size_t i = 0; i < training_.target_ops.size(); ++i) {
        FUSIONLLM_ASSIGN_OR_RETURN(counted.emplace_back(), runner_->ScalarAfter(program_.forward, target_figures_[i], slot));
      }
      losses_.Add(micro_batch, std::move(loss), std::move(counted));
      if (runner_->synchronous()) FUSIONLLM_RETURN_IF_ERROR(SettleLosses(step, micro_batch));
    }
    if (!runner_->timed_by_device()) Trace(TraceSpan::Kind::kForward, GlobalIndex(micro_batch), step, begin);
    return absl::OkStatus();
  }

  absl::Status RunBackward(int64_t step, int micro_batch, bool at_once) {
    const int64_t begin = MonotonicNanoseconds();
    FUSIONLLM_ASSIGN_OR_RETURN(const double seconds, runner_->Run(program_.backward, ContextOf(step, micro_batch, at_once)));
    times_.backward_seconds += seconds;
    if (!runner_->timed_by_device()) Trace(TraceSpan::Kind::kBackward, GlobalIndex(micro_batch), step, begin);
    return absl::OkStatus();
  }

  // All passes of a step, and their losses.
  absl::Status RunPasses(int64_t step) {
    absl::Status status;
    schedule::Progress progress;
    while (status.ok() && progress.backwards < config_.micro_batches) status = RunNextPass(step, progress);
    if (status.ok() || IsNotFinite(status)) {
      // Before what it spoiled.
      FUSIONLLM_RETURN_IF_ERROR(SettleLosses(step, config_.micro_batches));
    }
    return status;
  }

  // Of passes whose calls return before the device has run them.
  absl::Status TakeDeviceTimes(int64_t step, int64_t step_begin) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<PassRunner::DeviceTime> passes, runner_->TakeDeviceTimes());
    for (const PassRunner::DeviceTime& pass : passes) {
      const bool forward = pass.pass == &program_.forward;
      (forward ? times_.forward_seconds : times_.backward_seconds) += 1e-9 * static_cast<double>(pass.end_ns - pass.begin_ns);
      if (!callbacks_.on_span) continue;
      callbacks_.on_span({forward ? TraceSpan::Kind::kForward : TraceSpan::Kind::kBackward, GlobalIndex(pass.micro_batch), step,
                          step_begin + pass.begin_ns, step_begin + pass.end_ns});
    }
    return absl::OkStatus();
  }

  // From gradients of the losses by micro-batch, each weighed with its share of targets that count, to those of the mean over all that do.
  float GradientScale(const StepDecision& decision) const {
    const double weight = GradientWeight(training_, decision);
    return weight > 0 ? static_cast<float>(1 / weight) : 0.0f;
  }

  absl::StatusOr<StepDecision> RunStep(int64_t step) {
    times_ = {.step = step};
    losses_.Begin();
    const double lateness_before = throttle_.lateness_seconds();
    const int64_t step_begin = MonotonicNanoseconds();
    FUSIONLLM_RETURN_IF_ERROR(runner_->BeginDeviceTimes());
    const bool timed_by_device = runner_->timed_by_device();
    FUSIONLLM_RETURN_IF_ERROR(RunPasses(step));

    const int64_t combine_begin = MonotonicNanoseconds();
    FUSIONLLM_RETURN_IF_ERROR(replicas_->AllReduceGradients(losses_.sums()));
    throttle_.BeginPass();
    int64_t cpu_begin = ThreadCpuNanoseconds();
    FUSIONLLM_RETURN_IF_ERROR(coordinator_->SendSharedGradients(step));
    FUSIONLLM_RETURN_IF_ERROR(store_->CombineLocalUses());
    throttle_.ChargeCpu(ThreadCpuNanoseconds() - cpu_begin);
    double update_seconds = throttle_.EndPass();
    const bool reports_first = program_.stage != 0 && !coordinator_->ReportsSharedGradients();
    if (!reports_first) FUSIONLLM_RETURN_IF_ERROR(coordinator_->CombineSharedGradients(step));
    StageReport report = ReportOfLosses();
    throttle_.BeginPass();
    cpu_begin = ThreadCpuNanoseconds();
    FUSIONLLM_ASSIGN_OR_RETURN(report.sums_of_squares, store_->SumsOfSquares());
    FUSIONLLM_RETURN_IF_ERROR(runner_->FinishSends());  // which wait for nothing that is not done
    FUSIONLLM_RETURN_IF_ERROR(TakeDeviceTimes(step, step_begin));
    throttle_.ChargeCpu(ThreadCpuNanoseconds() - cpu_begin);
    update_seconds += throttle_.EndPass();
    if (reports_first) {
      FUSIONLLM_RETURN_IF_ERROR(coordinator_->SendReport(step, report));
      FUSIONLLM_RETURN_IF_ERROR(coordinator_->CombineSharedGradients(step));
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const StepDecision decision, CoordinateStep(step, report, reports_first));
    if (!std::isfinite(decision.norm)) return NormNotFinite(step, decision);
    times_.wait_seconds += static_cast<double>(MonotonicNanoseconds() - combine_begin) * 1e-9 - update_seconds;
    if (timed_by_device) {
      // This thread waits for the device, too, which has work meanwhile.
      const double whole = static_cast<double>(MonotonicNanoseconds() - step_begin) * 1e-9;
      times_.wait_seconds = std::max(0.0, whole - times_.forward_seconds - times_.backward_seconds - update_seconds);
    }

    const int64_t update_begin = MonotonicNanoseconds();
    throttle_.BeginPass();
    cpu_begin = ThreadCpuNanoseconds();
    FUSIONLLM_RETURN_IF_ERROR(store_->Update(LearningRateAt(config_.learning_rate, config_.optimizer.learning_rate, step), step,
                                             ClipScale(decision.norm, config_.gradient_clip_norm) * GradientScale(decision)));
    throttle_.ChargeCpu(ThreadCpuNanoseconds() - cpu_begin);
    update_seconds += throttle_.EndPass();
    Trace(TraceSpan::Kind::kUpdate, -1, step, update_begin);
    times_.busy_seconds = times_.forward_seconds + times_.backward_seconds + update_seconds;
    times_.lateness_seconds = throttle_.lateness_seconds() - lateness_before;
    if (callbacks_.on_stage_step) callbacks_.on_stage_step(times_);
    return decision;
  }

  StageReport ReportOfLosses() {
    if (!program_.owns_loss) return {};
    const LossSums& sums = losses_.sums();
    return {.has_loss = true,
            .loss = static_cast<float>(MeanLoss(training_, sums, GlobalMicroBatches())),
            .counted = sums.counted / GlobalMicroBatches()};
  }

  absl::StatusOr<StepDecision> CoordinateStep(int64_t step, const StageReport& report, bool reported) {
    if (program_.stage != 0) {
      if (!reported) FUSIONLLM_RETURN_IF_ERROR(coordinator_->SendReport(step, report));
      return coordinator_->AwaitDecision(step);
    }
    FUSIONLLM_ASSIGN_OR_RETURN(StepDecision decision, coordinator_->CollectReports(step, report));
    if (config_.replica == 0 && std::isfinite(decision.norm) && callbacks_.on_step) {
      const StageCallbacks::Decision requested =
          callbacks_.on_step({.step = step,
                              .loss = decision.loss,
                              .counted = decision.counted,
                              .gradient_norm = decision.norm,
                              .learning_rate = LearningRateAt(config_.learning_rate, config_.optimizer.learning_rate, step)});
      decision.stop = requested.stop;
      decision.checkpoint = requested.checkpoint;
    }
    FUSIONLLM_ASSIGN_OR_RETURN(decision, replicas_->BroadcastDecision(step, decision));
    FUSIONLLM_RETURN_IF_ERROR(coordinator_->SendDecision(step, decision));
    return decision;
  }

  // Before the backward pass, so that a NaN or infinite loss is always named as such and not by the gradients it spoils.
  absl::Status LossNotFinite(int64_t step, int micro_batch, float loss) const {
    const std::string origin = runner_->FirstNotFinite(micro_batch % config_.in_flight);
    return NotFiniteError(absl::StrFormat("the loss of op '%s' is %s at step %d, micro-batch %d%s%s", LossOpOf(training_).name,
                                          Spelled(loss), step, GlobalIndex(micro_batch), origin.empty() ? "" : "; it begins at ", origin));
  }

  // On the stage of replica 0 that owns the first offending gradient. The others wait for the end that its error brings, so that the run
  // is reported once, and by the device concerned.
  absl::Status NormNotFinite(int64_t step, const StepDecision& decision) {
    if (config_.replica != 0 || (decision.offending_parameter != opdag::kNone && !store_->Owns(decision.offending_parameter))) {
      while (true) FUSIONLLM_RETURN_IF_ERROR(inbox_.WaitForDelivery(inbox_.deliveries()));
    }
    std::string offender;
    if (decision.offending_parameter != opdag::kNone) {
      std::vector<std::string> ops;
      for (const autodiff::ParameterUse& use : training_.uses) {
        if (use.parameter == decision.offending_parameter) ops.push_back(absl::StrCat("'", training_.graph.op(use.op).name, "'"));
      }
      offender = absl::StrFormat(": the gradient of parameter '%s' of op %s is not finite",
                                 training_.graph.parameter(decision.offending_parameter).name, absl::StrJoin(ops, ", "));
    }
    return NotFiniteError(absl::StrFormat("the gradient norm is %s at step %d, where the loss is %g%s", Spelled(decision.norm), step,
                                          decision.loss, offender));
  }

  void Trace(TraceSpan::Kind kind, int micro_batch, int64_t step, int64_t begin_ns) const {
    if (callbacks_.on_span) callbacks_.on_span({kind, micro_batch, step, begin_ns, MonotonicNanoseconds()});
  }

  const autodiff::TrainingGraph& training_;
  const StageProgram program_;
  const StageConfig config_;
  const EdgeCodecPtr codecs_;
  Inbox& inbox_;
  BatchSource& source_;
  TargetWeights target_weights_;
  DeviceThrottle& throttle_;
  const StageCallbacks callbacks_;
  const int evaluation_source_;  // the lowest stage that reads data: it tells how much of them an evaluation has; -1: none reads any
  const int evaluation_window_;
  const std::vector<opdag::ValueId> target_figures_;
  int64_t evaluated_samples_ = 0;  // of the evaluation that is under way
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<ReplicaGroup> replicas_;
  std::optional<StepCoordinator> coordinator_;
  std::unique_ptr<PassRunner> runner_;
  std::vector<std::string> residual_names_;
  std::vector<CutEdge> residual_edges_;  // of the first names
  StageStepTimes times_;
  StepLosses losses_{training_};
};

StageExecutor::StageExecutor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StageExecutor::~StageExecutor() = default;

absl::StatusOr<std::unique_ptr<StageExecutor>> StageExecutor::Create(const autodiff::TrainingGraph& training,
                                                                     const std::vector<int>& stage_of_op, int stage, int stages,
                                                                     const StageConfig& config, EdgeCodecPtr codecs,
                                                                     kernels::Backend& backend, MessagePort& port, Inbox& inbox,
                                                                     BatchSource& source, DeviceThrottle& throttle,
                                                                     StageCallbacks callbacks, collective::Communicator* replicas) {
  if (config.micro_batches < 1 || config.in_flight < config.schedule.MinInFlight(config.micro_batches) ||
      config.in_flight > config.micro_batches) {
    return absl::InvalidArgumentError(absl::StrFormat("%d micro-batches with %d in flight", config.micro_batches, config.in_flight));
  }
  if (config.batch_micro_batches > 0 &&
      (config.first_micro_batch < 0 || config.first_micro_batch > config.batch_micro_batches - config.micro_batches)) {
    return absl::InvalidArgumentError(absl::StrFormat("micro-batches %d to %d of a batch that has %d", config.first_micro_batch,
                                                      config.first_micro_batch + config.micro_batches - 1, config.batch_micro_batches));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(StageProgram program,
                             BuildStageProgram(training, stage_of_op, stage, stages, config.recompute, config.reshapes));
  auto impl = std::make_unique<Impl>(training, std::move(program), config, std::move(codecs), inbox, source, throttle, std::move(callbacks),
                                     stage_of_op);
  FUSIONLLM_RETURN_IF_ERROR(impl->Prepare(backend, port, replicas));
  impl->NameResiduals(stage_of_op);
  return std::unique_ptr<StageExecutor>(new StageExecutor(std::move(impl)));
}

ParameterStore& StageExecutor::store() { return impl_->store(); }
absl::Status StageExecutor::PullToHost() { return impl_->PullToHost(); }
absl::Status StageExecutor::PushToDevice() { return impl_->PushToDevice(); }
const StageProgram& StageExecutor::program() const { return impl_->program(); }
StageMemory StageExecutor::memory() const { return impl_->memory(); }
std::vector<int64_t> StageExecutor::sent_bytes() const { return impl_->runner().sent_bytes(); }
int64_t StageExecutor::replays() const { return impl_->runner().replays(); }
std::map<int, LinkCompression> StageExecutor::compression() const { return impl_->compression(); }
const std::vector<std::string>& StageExecutor::residual_names() const { return impl_->residual_names(); }
tensor::TensorView StageExecutor::residual(const std::string& name) { return impl_->residual(name); }
absl::StatusOr<std::vector<OpTime>> StageExecutor::MeasureOps(const MeasureOptions& options) { return impl_->MeasureOps(options); }
absl::StatusOr<int64_t> StageExecutor::Run(int64_t first, int64_t last) { return impl_->Run(first, last); }
absl::StatusOr<EvaluationResult> StageExecutor::Evaluate(int64_t step, std::optional<int64_t> batches) {
  return impl_->Evaluate(step, batches);
}

}  // namespace fusionllm::runtime
