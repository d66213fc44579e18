// RunState: who joins, who leaves, who comes back to a restarted broker.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/pluralize.h"
#include "lib/broker/run_state.h"
#include "lib/broker/timeouts.h"
#include "lib/scheduler/plan_error_reasons.h"

namespace fusionllm::broker {
namespace {

constexpr uint32_t kMaxEpochs = 1'000'000'000;  // what claims to run a later one, has made it up

}  // namespace

void RunState::Handle(const ExecutorJoined& event) {
  const Executor& executor = event.executor;
  if (!executors_.Admit(executor)) return;
  const bool same_process = executors_.IsSameProcess(executor);
  if (executors_.IsPresent(executor.name) && !same_process) {
    // A restarted executor: its former life is over before the new one begins.
    Handle(ExecutorLeft{.name = executor.name, .incarnation = executors_.at(executor.name).incarnation, .why = "restarted"});
    if (IsOver()) return;
  }
  executors_.Join(executor);
  requests_.OnJoined();
  if (event.epoch > epoch() && event.epoch < kMaxEpochs) {
    // The broker before this one began it, and left no word of it. What its stages do from here on could not be distinguished from ours.
    epoch_.RecordForeign(event.epoch);
    Push(SendAbort{
        .name = executor.name, .epoch = event.epoch, .why = "the broker that began this plan epoch is gone, and its journal, too"});
  }
  if (epoch_.adopted()) {
    epoch_.OnRejoined(executor.name, event.epoch);
    ResumeAdopted(/*time_is_up=*/false);
    return;
  }
  const bool gathers = phase() == Phase::kGathering, awaits_data = gathering_.awaits_data();
  if (!same_process && (!gathers || awaits_data)) {
    Push(
        EmitEvent{.reason = "ExecutorJoined",
                  .step = last_step(),
                  .message = absl::StrCat(executor.name, " joined as a spare", replanner_.DescribeLateJoiner(executor, epoch_, executors_)),
                  .device = executor.name,
                  .pid = executor.pid});
  } else if (!same_process && options_.min_executors > 0) {  // whose names were unknown: somebody may be waiting for them to come
    Push(EmitEvent{.reason = "ExecutorConnected",
                   .step = last_step(),
                   .message = absl::StrFormat("%s is here%s; %d of %s", executor.name, executor.spare ? ", a spare" : "",
                                              executors_.CountNonSpares(), base::Pluralize(options_.min_executors, "executor")),
                   .device = executor.name,
                   .pid = executor.pid});
  }
  if (gathers || awaits_data) OnExecutorsChanged();
}

void RunState::Handle(const JoinTimeout&) {
  if (epoch_.adopted() || gathering_.awaits_data()) return;
  gathering_.Close();
  if (phase() == Phase::kGathering && !executors().empty()) MeasureNext();
}

void RunState::Handle(const ExecutorLeft& event) {
  if (!executors_.Leave(event.name, event.incarnation)) return;
  requests_.OnLost(event.name);
  measurement_.Lost(event.name);
  if (epoch_.adopted()) {
    epoch_.OnLost(event.name);
    return;
  }
  if (phase() == Phase::kFinishing && !checkpoints_.UnderWay()) return;
  const int rank = plan().RankOf(event.name);
  const bool required = !epoch_.IsNoLongerRequired(rank);
  const std::string role = rank < 0 ? "no stage" : plan().Describe(rank);
  EmitEvent lost{.reason = "ExecutorLost",
                 .step = last_step(),
                 .message = absl::StrFormat("%s (%s) was lost after step %d: %s%s", event.name, role, last_step(), event.why,
                                            required ? "" : kNoLongerRequired),
                 .device = event.name};
  SetStageAndReplica(plan(), rank, lost);
  Push(std::move(lost));
  switch (phase()) {
    case Phase::kGathering:
      if (executors_.HasData(event.name) && executors_.LacksData() && !gathering_.awaits_data()) AwaitExecutors();
      break;
    case Phase::kCalibrating:
    case Phase::kProbing:
      MeasureNext();
      break;
    case Phase::kPlanning:
      if (!requests_.AsksForFigures()) {
        MeasureNext();
      } else if (rank >= 0) {
        Recover();
      }
      break;
    case Phase::kLoading:
    case Phase::kRunning:
    case Phase::kFinishing:
      if (!required) {
        EndOtherReplicas(absl::StrCat(event.name, " was lost"));
      } else if (rank >= 0) {
        Drain(absl::StrFormat("%s (%s) was lost: %s", event.name, role, event.why));
      }
      break;
    case Phase::kDraining:
      OnStopped(event.name);
      break;
    case Phase::kDone:
    case Phase::kFailed:
      break;
  }
}

void RunState::Follow(const Gathering::Verdict& verdict) {
  switch (verdict.kind) {
    case Gathering::Verdict::Kind::kWait:
      break;
    case Gathering::Verdict::Kind::kMeasure:
      MeasureNext();
      break;
    case Gathering::Verdict::Kind::kRecover:
      recovery_.OnAwaited();
      Recover();
      break;
    case Gathering::Verdict::Kind::kFail:
      Fail(verdict.failure);
      break;
  }
}

void RunState::OnExecutorsChanged() { Follow(gathering_.OnExecutorsChanged(executors_, Position(), queue_)); }

void RunState::AwaitExecutors() { gathering_.AwaitExecutors(executors_, Position(), queue_); }

bool RunState::AwaitsData(Gathering::State then) {
  const Gathering::Verdict verdict = gathering_.AwaitData(then, executors_, Position(), queue_);
  if (verdict.kind == Gathering::Verdict::Kind::kWait) {
    Enter(Phase::kGathering);
  } else if (verdict.kind == Gathering::Verdict::Kind::kFail) {
    Fail(verdict.failure);
  } else {
    return false;
  }
  return true;
}

bool RunState::AwaitLost(const std::string& why) {
  if (!gathering_.AwaitLost(why, executors_, Position(), queue_)) return false;
  Enter(Phase::kGathering);
  return true;
}

// An executor says so when it is welcomed, in whatever phase the run is, or when it is asked to measure.
void RunState::RejectUnfit(const std::string& name, const absl::Status& why) {
  const bool adopted = epoch_.adopted(), planned = epoch_.planned();
  if (!executors_.IsDispensable(name, planned, phase() == Phase::kGathering)) {
    Fail(absl::Status(why.code(), absl::StrCat("executor ", name, ": ", std::string(why.message()))),
         absl::IsResourceExhausted(why) ? scheduler::plan_errors::kInsufficientMemory : "");
    return;
  }
  executors_.MarkUnfit(name);
  const std::string sentence = absl::StrCat("it cannot take part: ", std::string(why.message()));
  if (adopted) {  // where losses are not reported at once
    Push(EmitEvent{.reason = "ExecutorLost", .step = last_step(), .message = absl::StrCat(name, ": ", sentence), .device = name});
  }
  // A machine that joined by itself may not know.
  if (!planned && options_.min_executors > 0) Push(Reject{.name = name, .why = sentence});
  Handle(ExecutorLeft{.name = name, .incarnation = executors_.at(name).incarnation, .why = sentence});
  if (adopted) {
    ResumeAdopted(/*time_is_up=*/false);
  } else if (phase() == Phase::kGathering) {
    OnExecutorsChanged();
  }
}

void RunState::RejectExecutor(const std::string& name, const std::string& why) {
  executors_.MarkUnfit(name);
  Push(Reject{.name = name, .why = why});
  Handle(ExecutorLeft{.name = name, .incarnation = executors_.at(name).incarnation, .why = why});
}

// After a restart of the broker: go on with the epoch when all its stages have come back. When one cannot, drain; but not before all
// had the time to come back, or a device that is still dialling would be taken for lost.
void RunState::ResumeAdopted(bool time_is_up) {
  for (const int64_t step : checkpoints_.Collecting()) CommitIfComplete(step);
  if (epoch_.CanResume()) {
    epoch_.Resume();
    BeginMonitoring();
    queue_.ArmTimer(kFirstStepSeconds, "a step after the broker came back");
    if (stop_requested_) Push(SendStop{.name = plan().devices[0], .epoch = epoch()});
    FinishWhenAllEnded();
    return;
  }
  const auto all_here = [this](const auto& names) {
    return std::all_of(names.begin(), names.end(), [this](const std::string& name) {
      return executors_.IsPresent(name) || executors_.IsUnfit(name) || options_.lost_executors.contains(name);
    });
  };
  const bool broken = epoch_.state() == PlanEpoch::State::kBroken;
  if (!time_is_up && !(broken && all_here(plan().devices) && all_here(options_.expected))) {
    if (executors().size() <= 1) queue_.ArmTimer(kRejoinSeconds, "executors to come back");
    return;
  }
  epoch_.EmitAbsent(executors_, queue_);
  Drain("the plan epoch did not outlive the broker");
}

}  // namespace fusionllm::broker
