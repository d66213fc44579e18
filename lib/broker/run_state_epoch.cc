// RunState: a plan epoch from its assignment to its end.
#include "lib/broker/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/exit_code.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {
namespace {

constexpr char kAfterDivergence[] =
    "; the same command again would end there again: lower spec.training.optimizer.learningRate, lengthen its warm-up "
    "(spec.training.schedule.warmupSteps), or clip gradients harder (spec.training.gradientClipNorm; 0 is off)";

}  // namespace

void RunState::Load() {
  const bool first = epoch_ == options_.last_epoch;
  epoch_ = std::max(epoch_, foreign_epoch_) + 1;
  phase_ = Phase::kLoading;
  last_step_ = checkpoint_step_;
  shards_.clear();
  ended_at_.clear();
  last_checkpoint_lost_.reset();
  Do(PublishPlan{});
  if (first) {
    for (const auto& [name, member] : members_) {
      const int rank = RankOf(name);
      EmitEvent joined{.reason = "ExecutorJoined", .step = last_step_, .device = name, .pid = member.pid};
      joined.message = rank < 0 ? absl::StrCat(name, " joined as a spare") : absl::StrCat(name, " joined and runs ", plan_.Describe(rank));
      SetStageAndReplica(rank, joined);
      Do(std::move(joined));
    }
  }
  if (!checkpoint_path_.empty()) {
    EmitRestored(absl::StrCat("restoring step ", checkpoint_step_, " from ", checkpoint_path_));
  } else if (!first) {
    EmitRestored("no checkpoint yet: starting again from the initial parameters");
  }
  waiting_ = {plan_.devices.begin(), plan_.devices.end()};
  load_s_ = 0;
  Await(kLoadSeconds, "stages to load");
  for (int rank = 0; rank < static_cast<int>(plan_.devices.size()); ++rank) {
    Do(SendAssign{.name = plan_.devices[static_cast<size_t>(rank)],
                  .epoch = epoch_,
                  .stage = plan_.StageOf(rank),
                  .replica = plan_.ReplicaOf(rank),
                  .restore_from = checkpoint_path_,
                  .first_step = checkpoint_step_ + 1});
  }
}

// Once where several tries are needed until a step is made.
void RunState::EmitRestored(std::string message) {
  if (message == restored_message_) return;
  restored_message_ = message;
  Do(EmitEvent{.reason = "Restored", .step = checkpoint_step_, .message = std::move(message)});
}

void RunState::Handle(const Ready& event) {
  if (phase_ != Phase::kLoading || event.epoch != epoch_ || StageOf(event.name) < 0) return;
  if (!event.status.ok()) {
    if (IsTransient(event.status)) {
      Drain(AtStage(event.name, event.status));
    } else if (JoinedByItself(event.name)) {
      RejectFromPlan(event.name, event.status);
    } else {
      // All that a stage reads to load was in order once, or is a checkpoint of this run: see exit_code.h.
      FailByStage(event.name, loaded_once_ ? base::AsDataLossInRun(event.status) : event.status);
    }
    return;
  }
  load_s_ = std::max(load_s_, event.load_s);
  waiting_.erase(event.name);
  if (waiting_.empty()) StartAll();
}

std::string RunState::AtStage(const std::string& name, const absl::Status& why) const {
  return absl::StrFormat("%s on %s: %s", plan_.Describe(RankOf(name)), name, std::string(why.message()));
}

// A broken device, or a lie, of a holder of the token is no reason to end the run of the others. Where all machines would meet the same,
// the run's own ones say so in the end.
bool RunState::JoinedByItself(const std::string& name) const {
  return options_.min_executors > 0 && members_.contains(name) && !HasData(name) && !options_.expected.contains(name);
}

void RunState::RejectFromPlan(const std::string& name, const absl::Status& why) {
  const uint64_t incarnation = members_.at(name).incarnation;
  unfit_[name] = incarnation;
  std::string sentence = absl::StrCat("it cannot take part: ", std::string(why.message()));
  Do(Reject{.name = name, .why = sentence});
  Handle(Left{.name = name, .incarnation = incarnation, .why = std::move(sentence)});
}

void RunState::FailByStage(const std::string& name, const absl::Status& why) { Fail(absl::Status(why.code(), AtStage(name, why))); }

void RunState::StartAll() {
  phase_ = Phase::kRunning;
  loaded_once_ = true;
  StartPlanMonitor();
  Await(kFirstStepSeconds, "the first step");
  for (const std::string& device : plan_.devices) Do(SendStart{.name = device, .epoch = epoch_});
  if (stop_asked_) Do(SendStop{.name = plan_.devices[0], .epoch = epoch_});
}

void RunState::Handle(const StepDone& event) {
  if (event.epoch != epoch_ || RankOf(event.name) != 0) return;
  if (event.record.step <= last_step_ || event.record.step > options_.total_steps) return;
  // Executors that come back to a restarted broker repeat what it has not acknowledged, perhaps before the others are there.
  if (phase_ != Phase::kRunning && phase_ != Phase::kFinishing && !adopted_) return;
  last_step_ = event.record.step;
  retries_without_progress_ = 0;
  stepped_ = true;
  restored_message_.clear();
  Do(PublishStep{.epoch = epoch_, .record = event.record});
  if (phase_ != Phase::kRunning) return;
  Await(std::max(kMinStepTimeoutSeconds, kStepTimeoutFactor * event.record.step_seconds), "the next step");
  EmitDrifts(plan_monitor_.OnStep(event.record.step, event.record.step_seconds));
  WatchLoss(event.record);
  ConsiderPlanSwitch();
}

bool RunState::IsCurrent(const Ended& event) const {
  if (event.epoch != epoch_ || StageOf(event.name) < 0) return false;
  return !event.status.ok() || (event.last_step >= 0 && event.last_step <= options_.total_steps);
}

void RunState::Handle(const Ended& event) {
  if (!IsCurrent(event)) return;
  if (phase_ == Phase::kDraining) {
    DrainedOne(event.name);
    return;
  }
  if (adopted_) {
    if (event.status.ok()) {
      ended_at_[event.name] = event.last_step;
    } else {
      adopted_epoch_is_over_ = true;
    }
    ResumeAdopted(/*time_is_up=*/false);
    return;
  }
  if (phase_ != Phase::kRunning && phase_ != Phase::kLoading) return;
  if (!event.status.ok()) {
    if (const int rank = RankOf(event.name); IsNoLongerRequired(rank)) {
      ended_at_[event.name] = ended_at_.at(plan_.devices[0]);
      EmitReplicaFailed(rank, std::string(event.status.message()));
      EndOtherReplicas(absl::StrCat(event.name, " has failed"));
    } else if (!event.lost_peer.empty() || IsTransient(event.status)) {
      Drain(AtStage(event.name, event.status));
      DrainedOne(event.name);
    } else if (!event.not_finite && JoinedByItself(event.name)) {
      RejectFromPlan(event.name, event.status);
    } else if (!BackOffFromNotFinite(event)) {
      // Its data may hold what the model cannot take, which is the user's input however late it is met. But the files were there.
      const bool lost = absl::IsNotFound(event.status) || absl::IsPermissionDenied(event.status);
      absl::Status status = lost ? base::AsDataLossInRun(event.status) : event.status;
      // Before the first step it is what the parameters begin with, or the data.
      if (event.not_finite && last_step_ > 0) {
        status = absl::Status(status.code(), absl::StrCat(status.message(), kAfterDivergence));
      }
      FailByStage(event.name, status);
    }
    return;
  }
  ended_at_[event.name] = event.last_step;
  FinishWhenAllEnded();
}

bool RunState::ReplicaZeroHasEnded() const {
  const auto begin = plan_.devices.begin();
  return !plan_.devices.empty() &&
         std::all_of(begin, begin + plan_.stages(), [this](const std::string& device) { return ended_at_.contains(device); });
}

// Replica 0 alone evaluates and saves checkpoints, and needs the others for its sums. But until each of its stages has ended, a lost
// replica of it is a lost peer, which ends it.
bool RunState::IsNoLongerRequired(int rank) const {
  const bool under_way = phase_ == Phase::kRunning || phase_ == Phase::kFinishing;
  return under_way && rank >= 0 && plan_.ReplicaOf(rank) > 0 && ReplicaZeroHasEnded();
}

void RunState::EmitReplicaFailed(int rank, const std::string& what) {
  const std::string& device = plan_.devices[static_cast<size_t>(rank)];
  EmitEvent failed{.reason = "ReplicaFailed",
                   .step = last_step_,
                   .message = absl::StrFormat("%s on %s: %s%s", plan_.Describe(rank), device, what, kNoLongerRequired),
                   .device = device};
  SetStageAndReplica(rank, failed);
  Do(std::move(failed));
}

// Once one of them is lost, or has failed, the rest may wait for it in vain.
void RunState::EndOtherReplicas(const std::string& why) {
  if (phase_ != Phase::kRunning) return;  // they have ended
  const int64_t last_step = ended_at_.at(plan_.devices[0]);
  for (size_t rank = static_cast<size_t>(plan_.stages()); rank < plan_.devices.size(); ++rank) {
    const std::string& device = plan_.devices[rank];
    if (ended_at_.try_emplace(device, last_step).second && Present(device)) Do(SendAbort{.name = device, .epoch = epoch_, .why = why});
  }
  FinishWhenAllEnded();
}

// The step that is waited for is not made any more: stages that do not end are not waited for longer than for a step.
void RunState::EndLateReplicas() {
  for (int rank = plan_.stages(); rank < static_cast<int>(plan_.devices.size()); ++rank) {
    if (!ended_at_.contains(plan_.devices[static_cast<size_t>(rank)])) EmitReplicaFailed(rank, "it has not ended");
  }
  EndOtherReplicas("replica 0 has ended long ago");
}

void RunState::FinishWhenAllEnded() {
  if (ended_at_.size() < plan_.devices.size()) return;
  if (last_checkpoint_lost_.has_value() && last_checkpoint_lost_->step >= last_step_) {
    Fail(last_checkpoint_lost_->status);
    return;
  }
  phase_ = Phase::kFinishing;
  Await(kFinishSeconds, "the last checkpoint");
  MaybeFinish();
}

}  // namespace fusionllm::broker
