// RunState: a plan epoch from its assignment to its end, its checkpoints, and what follows a loss or a failure.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/exit_code.h"
#include "lib/broker/run_state.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {
namespace {

constexpr char kAfterDivergence[] =
    "; the same command again would end there again: lower spec.training.optimizer.learningRate, lengthen its warm-up "
    "(spec.training.schedule.warmupSteps), or clip gradients harder (spec.training.gradientClipNorm; 0 is off)";

}  // namespace

void RunState::Load() {
  const bool first = epoch_.Begin(checkpoints_.step());
  checkpoints_.BeginEpoch();
  Push(PublishPlan{});
  if (first) {
    for (const auto& [name, executor] : executors()) {
      const int rank = plan().RankOf(name);
      EmitEvent joined{.reason = "ExecutorJoined", .step = last_step(), .device = name, .pid = executor.pid};
      joined.message = rank < 0 ? absl::StrCat(name, " joined as a spare") : absl::StrCat(name, " joined and runs ", plan().Describe(rank));
      SetStageAndReplica(plan(), rank, joined);
      Push(std::move(joined));
    }
  }
  if (!checkpoints_.path().empty()) {
    const std::string message = absl::StrCat("restoring step ", checkpoints_.step(), " from ", checkpoints_.path());
    recovery_.EmitRestored(checkpoints_.step(), message, queue_);
  } else if (!first) {
    recovery_.EmitRestored(checkpoints_.step(), "no checkpoint yet: starting again from the initial parameters", queue_);
  }
  queue_.ArmTimer(kLoadSeconds, "stages to load");
  for (int rank = 0; rank < static_cast<int>(plan().devices.size()); ++rank) {
    Push(SendAssign{.name = plan().devices[static_cast<size_t>(rank)],
                    .epoch = epoch(),
                    .stage = plan().StageOf(rank),
                    .replica = plan().ReplicaOf(rank),
                    .restore_from = checkpoints_.path(),
                    .first_step = checkpoints_.step() + 1});
  }
}

void RunState::Handle(const StageReady& event) {
  if (phase() != Phase::kLoading || event.epoch != epoch() || !plan().Uses(event.name)) return;
  if (event.status.ok()) {
    if (epoch_.OnReady(event.name, event.load_s)) StartAll();
  } else if (IsTransient(event.status)) {
    Drain(epoch_.AtStage(event.name, event.status));
  } else if (executors_.JoinedByItself(event.name)) {
    RejectExecutor(event.name, absl::StrCat("it cannot take part: ", std::string(event.status.message())));
  } else {
    // All that a stage reads to load was in order once, or is a checkpoint of this run: see exit_code.h.
    FailByStage(event.name, epoch_.loaded_once() ? base::AsDataLossInRun(event.status) : event.status);
  }
}

void RunState::FailByStage(const std::string& name, const absl::Status& why) { Fail(absl::Status(why.code(), epoch_.AtStage(name, why))); }

void RunState::BeginMonitoring() {
  replanner_.BeginEpoch(plan(), measurement_, executors_);
  codecs_.BeginEpoch();
}

void RunState::StartAll() {
  epoch_.Start();
  BeginMonitoring();
  queue_.ArmTimer(kFirstStepSeconds, "the first step");
  for (const std::string& device : plan().devices) Push(SendStart{.name = device, .epoch = epoch()});
  if (stop_requested_) Push(SendStop{.name = plan().devices[0], .epoch = epoch()});
}

void RunState::Handle(const StepDone& event) {
  if (!epoch_.OnStep(event)) return;
  recovery_.OnStep();
  Push(PublishStep{.epoch = epoch(), .record = event.record});
  if (!epoch_.runs()) return;
  queue_.ArmTimer(std::max(kMinStepTimeoutSeconds, kStepTimeoutFactor * event.record.step_seconds), "the next step");
  replanner_.OnStep(event.record, epoch_, queue_);
  const bool goes_on = replanner_.state() != Replanner::State::kSwitching && !stop_requested_;
  if (goes_on && codecs_.OnStep(event.record, plan(), queue_)) {
    if (options_.checkpoints) {  // other cuts may be better now
      replanner_.Switch({.why = absl::StrCat("codecs up to ", codec_limit())}, epoch_, queue_);
    } else {
      for (const std::string& device : plan().devices) Push(SendCodecLimit{.name = device, .epoch = epoch(), .codec = codec_limit()});
    }
  }
  ConsiderPlanSwitch();
}

void RunState::Handle(const StageEnded& event) {
  if (!epoch_.IsCurrent(event)) return;
  if (phase() == Phase::kDraining) {
    OnStopped(event.name);
  } else if (epoch_.adopted()) {
    if (event.status.ok()) {
      epoch_.OnEnded(event.name, event.last_step);
    } else {
      epoch_.Break();
    }
    ResumeAdopted(/*time_is_up=*/false);
  } else if (phase() == Phase::kRunning || phase() == Phase::kLoading) {
    if (event.status.ok()) {
      epoch_.OnEnded(event.name, event.last_step);
      FinishWhenAllEnded();
    } else {
      OnStageFailed(event);
    }
  }
}

void RunState::OnStageFailed(const StageEnded& event) {
  const std::string where = epoch_.AtStage(event.name, event.status);
  if (const int rank = plan().RankOf(event.name); epoch_.IsNoLongerRequired(rank)) {
    epoch_.OnEnded(event.name, epoch_.LastStepOfReplicaZero());
    epoch_.EmitReplicaFailed(rank, std::string(event.status.message()), queue_);
    EndOtherReplicas(absl::StrCat(event.name, " has failed"));
  } else if (!event.lost_peer.empty() || IsTransient(event.status)) {
    Drain(where);
    OnStopped(event.name);
  } else if (!event.not_finite && executors_.JoinedByItself(event.name)) {
    // A broken device, or a lie, of a holder of the token is no reason to end the run of the others. Where all machines would meet the
    // same, the run's own ones say so in the end.
    RejectExecutor(event.name, absl::StrCat("it cannot take part: ", std::string(event.status.message())));
  } else if (codecs_.OnNotFinite(event, where, last_step(), plan(), queue_)) {
    replanner_.NeedOtherCodecs(absl::StrCat("codecs up to ", codec_limit()));
    Drain(where);
    OnStopped(event.name);
  } else {
    // Its data may hold what the model cannot take, which is the user's input however late it is met. But the files were there.
    const bool lost = absl::IsNotFound(event.status) || absl::IsPermissionDenied(event.status);
    absl::Status status = lost ? base::AsDataLossInRun(event.status) : event.status;
    // Before the first step it is what the parameters begin with, or the data.
    if (event.not_finite && last_step() > 0) status = absl::Status(status.code(), absl::StrCat(status.message(), kAfterDivergence));
    FailByStage(event.name, status);
  }
}

// Once one of them is lost, or has failed, the rest may wait for it in vain.
void RunState::EndOtherReplicas(const std::string& why) {
  if (!epoch_.runs()) return;  // they have ended
  epoch_.EndOtherReplicas(why, executors_, queue_);
  FinishWhenAllEnded();
}

void RunState::FinishWhenAllEnded() {
  if (!epoch_.AllEnded()) return;
  if (checkpoints_.lost().has_value() && checkpoints_.lost()->step >= last_step()) {
    Fail(checkpoints_.lost()->status);
    return;
  }
  epoch_.End();
  queue_.ArmTimer(kFinishSeconds, "the last checkpoint");
  MaybeFinish();
}

bool RunState::EndedForAnotherPlan() const { return !stop_requested_ && epoch_.EndedBeforeLastStep(); }

void RunState::MaybeFinish() {
  if (phase() != Phase::kFinishing || checkpoints_.UnderWay()) return;
  if (EndedForAnotherPlan()) {
    SwitchPlan();
  } else {
    Finished();
  }
}

// ---- Checkpoints ------------------------------------------------------------------------------------------------------------------------

void RunState::Handle(const ShardWritten& event) {
  if (!epoch_.IsCurrent(event)) return;
  if (event.status.ok() && !IsCurrent(event)) {  // nothing better will come from this stage: the checkpoint fails
    ShardWritten refused = event;
    refused.status = absl::InvalidArgumentError(
        absl::StrFormat("stage %d on %s reported files that are not those of its shard", event.stage, event.name));
    Handle(refused);
    return;
  }
  switch (checkpoints_.Add(event)) {
    case RunCheckpoints::AddResult::kIgnored:
      return;
    case RunCheckpoints::AddResult::kFirstFailure:
      Handle(CheckpointCommitted{.step = event.step, .status = event.status});
      if (IsOver()) return;
      break;
    case RunCheckpoints::AddResult::kAccepted:
      break;
  }
  CommitIfComplete(event.step);
}

void RunState::CommitIfComplete(int64_t step) {
  CommitCheckpoint commit{.codec_limit = codec_limit(), .codec_limits = codecs_.limits()};
  if (!checkpoints_.CommitIfComplete(step, plan().stages(), std::move(commit), queue_)) MaybeFinish();
}

void RunState::Handle(const CheckpointCommitted& event) {
  const bool is_last = (phase() == Phase::kFinishing && !EndedForAnotherPlan()) || event.step >= total_steps() || stop_requested_;
  switch (checkpoints_.OnCommitted(event, {.is_last = is_last, .runs = epoch_.runs(), .last_step = last_step()}, queue_)) {
    case RunCheckpoints::Outcome::kContinues:
      MaybeFinish();
      break;
    case RunCheckpoints::Outcome::kLost:
      break;
    case RunCheckpoints::Outcome::kFatal:
      Fail(checkpoints_.lost()->status);
      break;
  }
}

void RunState::Handle(const CheckpointUnusable& event) {
  if (phase() != Phase::kLoading || event.epoch != epoch() || event.path != checkpoints_.path()) return;
  checkpoints_.MarkUnusable(event);
  Drain(std::string(event.status.message()));
}

void RunState::Handle(const CheckpointReplaced& event) {
  if (checkpoints_.restore() != RunCheckpoints::Restore::kReplacing) return;
  if (absl::Status replaced = checkpoints_.OnReplaced(event, queue_); !replaced.ok()) {
    Fail(std::move(replaced));
    return;
  }
  recovery_.OnAwaited();
  Recover();
}

// ---- Losses -----------------------------------------------------------------------------------------------------------------------------

void RunState::Drain(const std::string& why) {
  // The step is made: what it lacks is room on the disk, and not another try.
  if (checkpoints_.lost().has_value() && checkpoints_.lost()->step == last_step()) {
    Fail(checkpoints_.lost()->status);
    return;
  }
  recovery_.OnStopping(why, last_step());
  epoch_.Drain(why, executors_, queue_);
  queue_.ArmTimer(kDrainSeconds, "stages to stop");
  if (epoch_.AllStopped()) Recover();
}

void RunState::OnStopped(const std::string& name) {
  if (epoch_.OnStopped(name)) Recover();
}

void RunState::Recover() {
  if (stop_requested_) {
    Finished();
    return;
  }
  if (checkpoints_.restore() != RunCheckpoints::Restore::kUsable) {
    checkpoints_.Replace(queue_);
    return;
  }
  if (AwaitsData(Gathering::State::kDataThenRecovery)) return;
  if (absl::Status counted = recovery_.CheckRetryLimit(); !counted.ok()) {
    Fail(std::move(counted));
    return;
  }
  if (replanner_.needs_other_codecs() || replanner_.state() == Replanner::State::kSwitching) {
    replanner_.ForgetSwitch();
    MeasureNext();
    return;
  }
  const double wait_s = recovery_.ScheduleRetry(/*lost=*/!executors_.AllPresent(plan().devices), queue_);
  if (wait_s == 0) {
    Retry();
    return;
  }
  epoch_.Pause();
  queue_.ArmTimer(wait_s, "the next try");
}

void RunState::Retry() {
  if (!recovery_.ReplaceLost(epoch_, executors_)) {
    if (options_.waits_for_executors && !epoch_.stepped() && !executors_.Missing().empty()) {
      epoch_.SetPlan({});  // nothing was made with it: as before the first one, they are waited for
      Enter(Phase::kGathering);
      OnExecutorsChanged();
      return;
    }
    replanner_.NeedSpares(true);
    MeasureNext();
  } else if (!recovery_.any_activated()) {
    Load();
  } else if (measurement_.KnowsAll(plan().devices) &&
             plan().plan.replicas == 1) {  // of several the planner has none for stages as they are
    Enter(Phase::kPlanning);
    requests_.AskForFigures(ComposeRequest(/*with_spares=*/false), plan(), queue_);
  } else {
    LoadOnSpares(/*figures_are_theirs=*/false);
  }
}

void RunState::LoadOnSpares(bool figures_are_theirs) {
  recovery_.EmitActivated(figures_are_theirs, queue_);
  Load();
}

}  // namespace fusionllm::broker
