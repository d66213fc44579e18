// StageHost: one plan epoch, from its stage being built to its end or abort.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "lib/base/status_macros.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/out_of_memory.h"
#include "services/executor/stage_host.h"

namespace fusionllm::services {
namespace {

// Steps of an epoch, counted from 1, whose timeline is reported, for the report to pick a typical one from: late enough to be warm, soon
// enough for a short run, and ever rarer after that.
constexpr int64_t kTracedFrom = 3;
constexpr int64_t kTracedTo = 5;
bool IsTraced(int64_t step) { return step >= kTracedFrom && (step <= kTracedTo || std::has_single_bit(static_cast<uint64_t>(step))); }

}  // namespace

StageContext StageHost::Setting(uint32_t epoch) {
  return {.name = options_.name,
          .workload = *workload_,
          .backend = *backend_,
          .data_plane = data_plane_,
          .restorer = *restorer_,
          .source = source_,
          .open_data = [this, epoch] { return OpenData(epoch); },
          .threads = threads_,
          .compute_scale = compute_scale_,
          .emulate = emulate_,
          .measure_lock = measure_lock_};
}

absl::StatusOr<std::unique_ptr<StageEpoch>> StageHost::Build(const v1::Assign& assign) {
  auto epoch = std::make_unique<StageEpoch>(assign);
  {
    const base::MutexLock lock(mutex_);
    if (aborted_epoch_ >= epoch->number) return absl::CancelledError("the plan epoch is over");
    inbox_ = epoch->inbox;
    inbox_epoch_ = epoch->number;
    codec_limit_ = epoch->codec_limit;
    fetching_ = std::stop_source();
    if (shutting_down_) fetching_.request_stop();
  }
  const absl::Status built = BuildStage(Setting(epoch->number), assign, CallbacksOf(*epoch), *epoch);
  if (!built.ok()) return AnnotateOutOfMemory(built, *epoch);
  FUSIONLLM_RETURN_IF_ERROR(RestoreEpoch(Setting(epoch->number), assign, *epoch));
  return epoch;
}

absl::Status StageHost::AnnotateOutOfMemory(const absl::Status& status, const StageEpoch& epoch) const {
  const auto& stages = epoch.plan.stages;
  const auto stage = static_cast<size_t>(epoch.stage);
  if (stage >= stages.size()) return status;
  plan::Stage own = stages[stage];
  own.memory_bytes = epoch.plan.ReplicaOf(epoch.stage, epoch.replica).memory_bytes;
  return services::AnnotateOutOfMemory(status, own, memory_bytes_);
}

runtime::StageCallbacks StageHost::CallbacksOf(StageEpoch& epoch) {
  const int64_t total = workload_->job.spec.training.steps;
  const bool keeps = workload_->job.spec.checkpoint.has_value();
  const int64_t every = keeps ? workload_->job.spec.checkpoint->every_steps : 0;
  runtime::StageCallbacks callbacks;
  callbacks.on_step = [this, &epoch, total, keeps, every](const runtime::StepResult& result) {
    epoch.result = result;
    const bool stop = stop_requested_ >= epoch.number;
    return runtime::StageCallbacks::Decision{
        .stop = stop, .checkpoint = keeps && (stop || result.step == total || (every > 0 && result.step % every == 0))};
  };
  callbacks.on_step_begin = [&epoch](int64_t step) {
    epoch.step_begin_ns = runtime::MonotonicNanoseconds();
    epoch.spans.clear();
  };
  callbacks.on_stage_step = [this, &epoch](const runtime::StageStepTimes& times) { ReportStep(epoch, times); };
  callbacks.on_checkpoint = [this, &epoch](int64_t step) {
    if (epoch.replica > 0) return absl::OkStatus();  // has what replica 0 saves
    shards_->Save(epoch.number, step, epoch.stage, epoch.stages, source_ == nullptr ? 0 : source_->CursorAfter(step).samples_consumed,
                  *epoch.executor);
    return absl::OkStatus();
  };
  callbacks.on_evaluation = [this, &epoch](int64_t step, const runtime::EvaluationResult& result) {
    v1::ExecutorMessage message;
    v1::EvaluationReport& report = *message.mutable_evaluation();
    report.set_epoch(epoch.number);
    report.set_step(step);
    report.set_loss(result.counted > 0 ? result.loss : std::numeric_limits<double>::quiet_NaN());
    if (result.accuracy.has_value()) report.set_accuracy(*result.accuracy);
    report_(std::move(message));
  };
  callbacks.on_span = [&epoch](const runtime::TraceSpan& span) {
    if (IsTraced(span.step - epoch.first_step + 1)) epoch.spans.push_back(span);
  };
  return callbacks;
}

void StageHost::ReportStep(StageEpoch& epoch, const runtime::StageStepTimes& times) {
  ++epoch.steps;
  epoch.busy_seconds += times.busy_seconds;
  epoch.lateness_seconds += times.lateness_seconds;
  {
    const base::MutexLock lock(mutex_);
    last_step_ = times.step;
  }
  if (epoch.stage == 0 && epoch.replica == 0) report_(StepReportOf(epoch));
  v1::ExecutorMessage report = TimesReportOf(epoch, times, memory_at_join_, data_plane_);
  executor_metrics_.Step(epoch.stage, report.times(), epoch.data.wraps() ? epoch.data.TakeSeconds() : -1);
  report_(std::move(report));
}

void StageHost::Start(uint32_t number) {
  if (epoch_ == nullptr || epoch_->number != number) return;
  {
    const base::MutexLock lock(mutex_);
    if (aborted_epoch_ >= number) return;
    running_epoch_ = started_epoch_ = number;
    running_stage_ = epoch_->stage;
    last_step_ = epoch_->first_step - 1;
  }
  Phase(absl::StrCat("training stage ", epoch_->stage));
  const int64_t total = workload_->job.spec.training.steps;
  absl::StatusOr<int64_t> last = epoch_->first_step - 1;
  if (const absl::Status joined = JoinReplicaGroup(Setting(number), *epoch_); !joined.ok()) {
    last = joined;
  } else if (total == 0 && shards_ != nullptr && epoch_->replica == 0) {
    shards_->Save(number, 0, epoch_->stage, epoch_->stages, 0, *epoch_->executor);
  } else if (epoch_->first_step <= total) {
    last = epoch_->executor->Run(epoch_->first_step, total);
    if (!last.ok()) last = AnnotateOutOfMemory(last.status(), *epoch_);
  }
  // A lost peer ends the epoch: shards are not waited for that are still on their way.
  if (!last.ok() && !epoch_->loss->peer().empty()) checkpoints_.Cancel(number);
  if (shards_ != nullptr) shards_->Wait();
  report_(EndReportOf(*epoch_, last.ok() ? *last : last_step_, last.status(), data_plane_));
  const base::MutexLock lock(mutex_);
  running_epoch_ = 0;
  running_stage_ = -1;
}

void StageHost::Abort(uint32_t number, const std::string& reason) {
  bool running = false;
  std::shared_ptr<runtime::Inbox> inbox;
  {
    const base::MutexLock lock(mutex_);
    aborted_epoch_ = std::max(aborted_epoch_, number);
    if (started_epoch_ <= number) started_epoch_ = 0;
    running = running_epoch_ == number;
    if (inbox_epoch_ <= number) inbox = inbox_;
    if (inbox_epoch_ <= number) fetching_.request_stop();
  }
  if (inbox != nullptr) inbox->Cancel(absl::CancelledError(reason));
  checkpoints_.Cancel(number);
  data_plane_.Detach(number);
  // A stage that has not started (or has ended) cannot report its end by itself.
  if (!running) {
    Post([this, number, reason] {
      v1::ExecutorMessage message;
      message.mutable_ended()->set_epoch(number);
      message.mutable_ended()->set_code(static_cast<int>(absl::StatusCode::kCancelled));
      message.mutable_ended()->set_message(reason);
      report_(std::move(message));
    });
  }
}

}  // namespace fusionllm::services
