#include "lib/broker/run_state.h"

#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kGathering:
      return "gathering";
    case Phase::kCalibrating:
      return "calibrating";
    case Phase::kProbing:
      return "probing";
    case Phase::kPlanning:
      return "planning";
    case Phase::kLoading:
      return "loading";
    case Phase::kRunning:
      return "running";
    case Phase::kDraining:
      return "draining";
    case Phase::kFinishing:
      return "finishing";
    case Phase::kDone:
      return "done";
    case Phase::kFailed:
      return "failed";
  }
  return "unknown";
}

RunState::RunState(RunOptions options)
    : options_(std::move(options)),
      executors_(options_),
      gathering_(options_),
      measurement_(options_),
      requests_(options_),
      epoch_(options_),
      checkpoints_(options_),
      recovery_(options_),
      replanner_(options_),
      codecs_(options_) {}

void RunState::Adopt(uint32_t epoch, RunPlan plan, std::map<std::string, std::string> profiles, std::vector<Link> links, int64_t last_step,
                     std::vector<ShardWritten> shards, std::map<std::string, int64_t> ended_at, const std::string& codec_limit,
                     CodecLimits codec_limits) {
  executors_.RecordTrainers(plan.desired_executors);
  epoch_.Adopt(epoch, std::move(plan), last_step, std::move(ended_at));
  measurement_.Adopt(std::move(profiles), std::move(links));
  checkpoints_.Adopt(std::move(shards));
  codecs_.Adopt(codec_limit, std::move(codec_limits));
}

std::vector<Action> RunState::On(const Event& event) {
  if (!IsOver()) std::visit([this](const auto& e) { Handle(e); }, event);
  return queue_.Take();
}

Phase RunState::phase() const {
  switch (epoch_.state()) {
    case PlanEpoch::State::kLoading:
      return Phase::kLoading;
    case PlanEpoch::State::kRunning:
      return Phase::kRunning;
    case PlanEpoch::State::kStopping:
    case PlanEpoch::State::kPausing:
      return Phase::kDraining;
    case PlanEpoch::State::kEnded:
      return Phase::kFinishing;
    case PlanEpoch::State::kNone:
    case PlanEpoch::State::kRejoining:
    case PlanEpoch::State::kBroken:
      break;
  }
  return phase_;
}

void RunState::Enter(Phase phase) {
  epoch_.Leave();
  phase_ = phase;
}

void RunState::Fail(absl::Status status, std::string refusal_reason) {
  for (const std::string& device : plan().devices) {
    if (executors_.IsPresent(device)) Push(SendAbort{.name = device, .epoch = epoch(), .why = std::string(status.message())});
  }
  Enter(Phase::kFailed);
  Push(Finish{.status = std::move(status), .refusal_reason = std::move(refusal_reason)});
}

void RunState::Finished() {
  const bool interrupted = stop_requested_ && (phase() != Phase::kFinishing || last_step() < total_steps());
  Enter(Phase::kDone);
  Push(Finish{.status = absl::OkStatus(), .interrupted = interrupted});
}

RunPosition RunState::Position() const {
  return {.planned = epoch_.planned(),
          .last_step = last_step(),
          .checkpoint_step = checkpoints_.step(),
          .checkpoint_path = checkpoints_.path()};
}

// All executors may have gone together with the broker before this one: no news of theirs would ever start a timer.
void RunState::Handle(const Started&) {
  if (epoch_.adopted()) ResumeAdopted(/*time_is_up=*/false);
}

void RunState::Handle(const StopRequested&) {
  stop_requested_ = true;
  switch (epoch_.state()) {
    case PlanEpoch::State::kRunning:
      // The timer of the step under way stays: a step without an end is not waited for longer than without the order.
      Push(SendStop{.name = plan().devices[0], .epoch = epoch()});
      break;
    case PlanEpoch::State::kPausing:
      Recover();
      break;
    case PlanEpoch::State::kLoading:
      Drain("the run is to stop");  // no step has been made since the last checkpoint that would be lost
      break;
    case PlanEpoch::State::kRejoining:
    case PlanEpoch::State::kBroken:
      // The stages are making steps and are asked to stop as soon as they are back, unless they have gone, too.
      if (executors().empty()) queue_.ArmTimer(kRejoinWhenStoppedSeconds, "executors to come back before the run stops");
      break;
    case PlanEpoch::State::kStopping:
    case PlanEpoch::State::kEnded:
      break;
    case PlanEpoch::State::kNone:
      Finished();
      break;
  }
}

void RunState::Handle(const TimerFired& event) {
  if (event.id != queue_.timer()) return;
  const auto fail_unanswered = [this] { Fail(absl::DeadlineExceededError(absl::StrFormat("no answer while %s", Name(phase())))); };
  switch (phase()) {
    case Phase::kGathering:
      if (epoch_.adopted()) {
        ResumeAdopted(/*time_is_up=*/true);
      } else {
        Follow(gathering_.OnTimer(event.id, executors_, Position(), queue_));
      }
      break;
    case Phase::kPlanning:
      if (requests_.AsksForFigures()) {
        LoadOnSpares(/*figures_are_theirs=*/false);
      } else if (requests_.has_plan()) {
        TakeSelectedPlan();  // which is not to wait for a better one
      } else {
        fail_unanswered();
      }
      break;
    case Phase::kCalibrating:
      if (const std::string name = measurement_.calibrating(); executors_.IsPresent(name)) {
        RejectUnfit(name, absl::DeadlineExceededError(absl::StrFormat("it has not measured itself in %g s", kCalibrateSeconds)));
      } else {
        fail_unanswered();
      }
      break;
    case Phase::kProbing:
      if (measurement_.state() != Measurement::State::kProbing) {
        MeasureNext();  // after a pause
      } else if (options_.waits_for_executors) {
        const auto [src, dst] = measurement_.GiveUpProbe();
        OnProbeFailed(src, dst, absl::DeadlineExceededError(absl::StrFormat("no answer in %g s", kProbeSeconds)));
      } else {
        fail_unanswered();
      }
      break;
    case Phase::kFinishing:
      fail_unanswered();
      break;
    case Phase::kRunning:
      // Where another plan is due, an executor that hangs must not be given a stage of it: it is to stop first, or counts as lost.
      if (epoch_.ReplicaZeroHasEnded() && !EndedForAnotherPlan()) {
        // The step that is waited for is not made any more: stages that do not end are not waited for longer than for a step.
        for (const int rank : epoch_.UnfinishedRanks()) epoch_.EmitReplicaFailed(rank, "it has not ended", queue_);
        EndOtherReplicas("replica 0 has ended long ago");
        break;
      }
      [[fallthrough]];
    case Phase::kLoading:
      Drain(absl::StrFormat("no progress while %s after step %d", Name(phase()), last_step()));
      break;
    case Phase::kDraining:
      if (epoch_.state() == PlanEpoch::State::kPausing) {
        if (!AwaitsData(Gathering::State::kDataThenRecovery)) Retry();
        break;
      }
      // One that does not even stop is as good as lost.
      for (const std::string& name : std::set<std::string>(epoch_.waiting())) {
        if (!executors_.IsPresent(name)) continue;
        Handle(ExecutorLeft{.name = name, .incarnation = executors_.at(name).incarnation, .why = "did not stop when asked to"});
      }
      break;
    case Phase::kDone:
    case Phase::kFailed:
      break;
  }
}

}  // namespace fusionllm::broker
