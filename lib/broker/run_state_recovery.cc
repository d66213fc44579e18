// RunState: losses, recovery, orders to stop, timeouts.
#include "lib/broker/run_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {

void RunState::Drain(const std::string& why) {
  // The step is made: what it lacks is room on the disk, and not another try.
  if (last_checkpoint_lost_.has_value() && last_checkpoint_lost_->step == last_step_) {
    Fail(last_checkpoint_lost_->status);
    return;
  }
  phase_ = Phase::kDraining;
  cause_ = why;
  drained_at_step_ = last_step_;
  waiting_.clear();
  for (const std::string& device : plan_.devices) {
    if (!Present(device) || ended_at_.contains(device)) continue;
    waiting_.insert(device);
    Do(SendAbort{.name = device, .epoch = epoch_, .why = why});
  }
  Await(kDrainSeconds, "stages to stop");
  if (waiting_.empty()) Recover();
}

void RunState::DrainedOne(const std::string& name) {
  waiting_.erase(name);
  if (phase_ == Phase::kDraining && !retrying_ && waiting_.empty()) Recover();
}

std::string RunState::IdleSpareFor(int rank) const {
  const bool reads_data = plan_.StageOf(rank) == 0 && !options_.data_devices.empty();
  // Declared spares first, then others without a stage; by name, so that the choice is reproducible.
  for (const bool spare : {true, false}) {
    for (const auto& [name, member] : members_) {
      if (member.spare != spare || StageOf(name) >= 0 || options_.excluded.contains(name) || (reads_data && !HasData(name))) continue;
      if (member.memory_bytes >= std::max(plan_.memory_bytes[static_cast<size_t>(rank)], options_.min_executor_memory_bytes)) return name;
    }
  }
  return "";
}

double RetrySeconds(int retries) {
  constexpr double kLongest = 60;
  return retries == 0 ? 0 : std::min(kLongest, std::ldexp(1.0, std::min(retries, 16) - 1));
}

void RunState::Recover() {
  if (stop_asked_) {
    phase_ = Phase::kDone;
    Do(Finish{.status = absl::OkStatus(), .interrupted = true});
    return;
  }
  if (unusable_.has_value()) {
    Replace();
    return;
  }
  if (AwaitOrFailWithoutData(Then::kRecover)) return;
  if (++recoveries_ > options_.max_recoveries) {
    Fail(absl::UnavailableError(
        absl::StrFormat("gave up after %d recoveries; the last one was for this: %s", options_.max_recoveries, cause_)));
    return;
  }
  if (codecs_are_stale_ || plan_switch_.has_value()) {
    plan_switch_.reset();
    CalibrateNext();
    return;
  }
  // After a loss the plan is another one, which may go well at once; one that is lost again and again is waited for like a failure.
  constexpr int kLossesAtOnce = 4;
  const bool lost = std::any_of(plan_.devices.begin(), plan_.devices.end(), [this](const std::string& name) { return !Present(name); });
  const double wait_s = RetrySeconds(lost ? std::max(0, retries_without_progress_ - kLossesAtOnce) : retries_without_progress_);
  ++retries_without_progress_;
  const std::string when = wait_s > 0 ? absl::StrFormat(" in %g s, for no step was made since the last one", wait_s) : "";
  Do(EmitEvent{.reason = "Recovering",
               .step = drained_at_step_,
               .message = absl::StrFormat("recovery %d of at most %d%s: %s", recoveries_, options_.max_recoveries, when, cause_)});
  if (wait_s == 0) {
    Retry();
    return;
  }
  phase_ = Phase::kDraining;
  retrying_ = true;
  Await(wait_s, "the next try");
}

// With who is there now.
void RunState::Retry() {
  std::erase_if(activated_, [this](const EmitEvent& activated) { return !Present(activated.device); });  // one of them may be what was lost
  for (size_t rank = 0; rank < plan_.devices.size(); ++rank) {
    if (Present(plan_.devices[rank])) continue;
    const std::string spare = IdleSpareFor(static_cast<int>(rank));
    if (spare.empty() && options_.waits_for_executors && !stepped_ && !Missing().empty()) {
      plan_ = {};  // nothing was made with it: as before the first one, they are waited for
      phase_ = Phase::kGathering;
      BeginWhenComplete();
      return;
    }
    if (spare.empty()) {
      plan_is_stale_ = true;
      CalibrateNext();
      return;
    }
    EmitEvent activated{
        .reason = "SpareActivated",
        .step = drained_at_step_,
        .message = absl::StrFormat("%s takes %s from %s", spare, plan_.Describe(static_cast<int>(rank)), plan_.devices[rank]),
        .device = spare,
        .pid = members_.at(spare).pid};
    SetStageAndReplica(static_cast<int>(rank), activated);
    activated_.push_back(std::move(activated));
    plan_.devices[rank] = spare;
    if (rank < plan_.stage_busy_s.size()) plan_.stage_busy_s[rank] = 0;  // was another device's
  }
  if (activated_.empty()) {
    Load();
  } else if (IsMeasured() && plan_.replicas == 1) {  // of several the planner has none for stages as they are
    AskForFigures();
  } else {
    LoadOnSpares(/*figures_are_theirs=*/false);
  }
}

bool RunState::IsMeasured() const {
  return std::all_of(plan_.devices.begin(), plan_.devices.end(), [this](const std::string& device) { return profiles_.contains(device); });
}

// What the plan promises was said of the devices that were lost; the stages stay what they are.
void RunState::AskForFigures() {
  phase_ = Phase::kPlanning;
  asks_for_figures_ = true;
  Await(kFiguresSeconds, "the scheduler");
  RequestPlan ask = PlanQuestion(/*with_spares=*/false);
  ask.id = ++plans_asked_;
  ask.again = true;
  ask.devices = plan_.devices;
  if (!options_.data_devices.empty()) ask.data_device = plan_.devices[0];
  ask.in_force = PlanInForce{.document = plan_.document, .devices = plan_.devices};
  ask.figures_only = true;
  Do(std::move(ask));
}

void RunState::TakeFigures(const PlanSummary& plan) {
  const bool theirs = plan.devices == plan_.devices;
  if (theirs) {
    const int executors = plan_.executors, wanted = plan_.wanted;
    plan_ = plan;
    plan_.executors = executors;
    plan_.wanted = wanted;
    slowness_ = slowness_asked_;
  }
  LoadOnSpares(theirs);
}

void RunState::LoadOnSpares(bool figures_are_theirs) {
  asks_for_figures_ = false;
  for (EmitEvent& activated : activated_) {
    if (!figures_are_theirs) absl::StrAppend(&activated.message, "; the predicted times are still those of the machine before it");
    Do(std::move(activated));
  }
  activated_.clear();
  Load();
}

void RunState::Handle(const StopAsked& event) {
  stop_asked_ = true;
  if (phase_ == Phase::kRunning) {
    // The timer of the step under way stays: a step without an end is not waited for longer than without the order.
    Do(SendStop{.name = plan_.devices[0], .epoch = epoch_});
  } else if (retrying_) {
    retrying_ = false;
    Recover();
  } else if (phase_ == Phase::kLoading) {
    Drain("the run is to stop");  // no step has been made since the last checkpoint that would be lost
  } else if (adopted_) {
    // The stages are making steps and are asked to stop as soon as they are back, unless they have gone, too.
    if (members_.empty()) Await(kRejoinWhenStoppedSeconds, "executors to come back before the run stops");
  } else if (phase_ == Phase::kGathering || phase_ == Phase::kCalibrating || phase_ == Phase::kProbing || phase_ == Phase::kPlanning) {
    phase_ = Phase::kDone;
    Do(Finish{.status = absl::OkStatus(), .interrupted = true});
  }
}

void RunState::FailUnanswered() { Fail(absl::DeadlineExceededError(absl::StrFormat("no answer while %s", Name(phase_)))); }

void RunState::Handle(const TimerFired& event) {
  if (event.id != expect_id_) return;
  switch (phase_) {
    case Phase::kGathering:
      if (adopted_) {
        ResumeAdopted(/*time_is_up=*/true);
      } else if (event.id == data_wait_notice_id_) {
        EmitMissingData();
      } else {
        BeginWithoutMissing();
      }
      break;
    case Phase::kPlanning:
      if (asks_for_figures_) {
        LoadOnSpares(/*figures_are_theirs=*/false);
      } else if (data_stage_selector_.has_plan()) {
        TakeSelectedPlan();  // which is not to wait for a better one
      } else {
        FailUnanswered();
      }
      break;
    case Phase::kCalibrating:
      if (Present(calibrating_)) {
        RejectUnfit(calibrating_, absl::DeadlineExceededError(absl::StrFormat("it has not measured itself in %g s", kCalibrateSeconds)));
        break;
      }
      FailUnanswered();
      break;
    case Phase::kProbing:
      if (!probing_.has_value()) {
        CalibrateNext();  // ProbeAgainLater
        break;
      }
      if (options_.waits_for_executors) {
        const auto [src, dst] = *std::exchange(probing_, std::nullopt);
        ProbeFailed(src, dst, absl::DeadlineExceededError(absl::StrFormat("no answer in %g s", kProbeSeconds)));
        break;
      }
      [[fallthrough]];
    case Phase::kFinishing:
      FailUnanswered();
      break;
    case Phase::kRunning:
      // Where another plan is due, an executor that hangs must not be given a stage of it: it is to stop first, or counts as lost.
      if (ReplicaZeroHasEnded() && !EndedForAnotherPlan()) {
        EndLateReplicas();
        break;
      }
      [[fallthrough]];
    case Phase::kLoading:
      Drain(absl::StrFormat("no progress while %s after step %d", Name(phase_), last_step_));
      break;
    case Phase::kDraining:
      if (retrying_) {
        retrying_ = false;
        if (!AwaitOrFailWithoutData(Then::kRecover)) Retry();
        break;
      }
      // One that does not even stop is as good as lost.
      for (const std::string& name : std::set<std::string>(waiting_)) {
        const auto member = members_.find(name);
        if (member != members_.end())
          Handle(Left{.name = name, .incarnation = member->second.incarnation, .why = "did not stop when asked to"});
      }
      break;
    case Phase::kDone:
    case Phase::kFailed:
      break;
  }
}

}  // namespace fusionllm::broker
