// RunState: what happens before the first step of a plan: calibration, probes, the plan itself; and whether another plan is to follow it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/broker/run_state.h"
#include "lib/scheduler/plan_error_reasons.h"

namespace fusionllm::broker {

// Measuring a model that has no room would end in executors that the kernel kills.
bool RunState::RefuseTooLarge() {
  // Of devices that are known the planner says more.
  const auto is_known = [this](const auto& executor) { return measurement_.Knows(executor.first); };
  if (std::all_of(executors().begin(), executors().end(), is_known)) return false;
  const std::string why = gathering_.InsufficientMemoryReason(executors_, epoch_.planned());
  if (why.empty()) return false;
  if (!AwaitLost(absl::StrCat(scheduler::plan_errors::kInsufficientMemory, ": ", why))) {
    Fail(absl::ResourceExhaustedError(why), scheduler::plan_errors::kInsufficientMemory);
  }
  return true;
}

void RunState::MeasureNext() {
  const bool planned = epoch_.planned();
  if (planned && AwaitsData(Gathering::State::kDataThenPlan)) return;
  gathering_.Begin();
  if (executors().empty()) {
    Enter(Phase::kGathering);
    AwaitExecutors();
    return;
  }
  if (!planned && RefuseTooLarge()) return;
  switch (measurement_.MeasureNext(/*after_run=*/!Measures(), executors_, queue_)) {
    case Measurement::Next::kWaits:
      return;
    case Measurement::Next::kCalibrates:
      Enter(Phase::kCalibrating);
      return;
    case Measurement::Next::kProbes:
      Enter(Phase::kProbing);
      return;
    case Measurement::Next::kDone:
      break;
  }
  if (!planned && !gathering_.IsComplete(executors_, planned)) {
    // An executor was lost meanwhile. A plan without a device that is being started again would leave it idle, or be refused.
    Enter(Phase::kGathering);
    AwaitExecutors();
    return;
  }
  AskForPlan();
}

void RunState::Handle(const Calibrated& event) {
  if (!executors_.IsPresent(event.name)) return;
  if (!event.status.ok()) {
    RejectUnfit(event.name, event.status);
    return;
  }
  if (!measurement_.EndCalibration(event.name, event.profile_document)) return;
  if (Measures()) {
    MeasureNext();
  } else {
    ConsiderPlanSwitch();
  }
}

void RunState::Handle(const LinkProbed& event) {
  const Link& link = event.link;
  if (!measurement_.EndProbe(link.src, link.dst)) return;
  if (!Measures()) {
    OnProbedDuringRun(event);
  } else if (!event.status.ok()) {
    OnProbeFailed(link.src, link.dst, event.status);
  } else {
    measurement_.ForgetFailures(link.src, link.dst);
    measurement_.Learn(link);
    MeasureNext();  // those who have joined meanwhile; then the next pair
  }
}

void RunState::OnProbeFailed(const std::string& src, const std::string& dst, const absl::Status& why) {
  const Measurement::ProbeVerdict verdict = measurement_.OnProbeFailed(src, dst, why, executors_, last_step(), queue_);
  switch (verdict.kind) {
    case Measurement::ProbeVerdict::Kind::kTryAgain:
      MeasureNext();
      break;
    case Measurement::ProbeVerdict::Kind::kPauses:
      break;
    case Measurement::ProbeVerdict::Kind::kFails:
      Fail(absl::UnavailableError(verdict.sentence));
      break;
    case Measurement::ProbeVerdict::Kind::kRejects:
      RejectExecutor(verdict.device, verdict.sentence);
      break;
  }
}

// A way that fails now is no reason to end the run, nor to send a device away: it is tried again when the next plan is made.
void RunState::OnProbedDuringRun(const LinkProbed& event) {
  if (event.status.ok()) {
    measurement_.Learn(event.link);
  } else {
    for (const std::string& name : {event.link.src, event.link.dst}) {
      if (plan().Uses(name) || executors_.IsConsidered(name)) continue;
      const std::string why = absl::StrFormat("probe %s -> %s: %s", event.link.src, event.link.dst, event.status.message());
      replanner_.Decline({name}, why, last_step(), executors_, queue_);
      break;
    }
  }
  ConsiderPlanSwitch();
}

RequestPlan RunState::ComposeRequest(bool with_spares) {
  executors_.RecordTrainers(executors_.Trainers());
  for (const auto& [ends, bytes_per_s] : replanner_.monitor().SlowLinks()) {
    measurement_.SetRate(ends.first, ends.second, bytes_per_s, executors_);
  }
  return requests_.Compose(with_spares, replanner_.monitor().Slowness(), codec_limit(), epoch_, executors_);
}

void RunState::Select(RequestPlan request, DataStageSelector::Objective objective) {
  requests_.Select(std::move(request), objective, replanner_.monitor().Slowness(), epoch_, executors_, measurement_);
}

void RunState::AskForPlan() {
  Enter(Phase::kPlanning);
  requests_.BeginPlanning();
  // Under a plan all stand still until there is another: the first that is possible will do.
  Select(ComposeRequest(/*with_spares=*/replanner_.needs_spares()),
         epoch_.planned() ? DataStageSelector::Objective::kAnyPlan : DataStageSelector::Objective::kShortestStep);
  AskNextPlan();
}

void RunState::AskNextPlan() {
  if (!requests_.AskNext(queue_)) TakeSelectedPlan();
}

void RunState::TakeSelectedPlan() {
  if (requests_.has_plan()) {
    requests_.EmitDataStageSelected(last_step(), queue_);
    Take(requests_.Selected(executors_, measurement_));
  } else if (requests_.joined_since_asked()) {
    MeasureNext();
  } else {
    const std::string reason = requests_.RefusalReason(), message = requests_.RefusalMessage();
    if (reason != kSchedulerFailed && AwaitLost(absl::StrCat(reason, ": ", message))) return;
    Fail(absl::ResourceExhaustedError(message), reason);
  }
}

void RunState::Handle(const Planned& event) {
  if (phase() != Phase::kPlanning || !requests_.Answers(event.id)) return;
  if (!requests_.AsksForFigures()) {
    requests_.Planned(event.plan);
    AskNextPlan();
    return;
  }
  const bool theirs = event.plan.devices == plan().devices;
  if (theirs) {
    epoch_.SetFigures(event.plan);
    requests_.TakeSlowness();
  }
  LoadOnSpares(theirs);
}

void RunState::Handle(const PlanRefused& event) {
  if (phase() != Phase::kPlanning || !requests_.Answers(event.id)) return;
  if (!requests_.AsksForFigures()) {
    requests_.Refused(event.reason, event.message);
    AskNextPlan();
  } else if (event.reason == kSchedulerFailed) {
    LoadOnSpares(/*figures_are_theirs=*/false);  // the stages are what they were, whatever ails the scheduler
  } else {
    // They cannot run there: too little memory, a link that is missing, a device that the job does not want.
    recovery_.ForgetActivated();
    replanner_.NeedSpares(true);
    MeasureNext();
  }
}

void RunState::Take(RunPlan taken) {
  for (const std::string& device : taken.devices) {
    if (executors_.IsPresent(device)) continue;  // after a loss another question would have been asked
    Fail(absl::InternalError(absl::StrCat("the plan uses ", device, ", which is no executor of this run")));
    return;
  }
  const bool again = epoch() > 0 && epoch_.planned();
  const RunPlan before = plan();
  epoch_.SetPlan(std::move(taken));
  requests_.TakeSlowness();
  executors_.MarkConsidered(requests_.devices_asked());
  const std::string why = replanner_.OnTaken();
  if (again) {
    Push(EmitEvent{.reason = "Replanned", .step = last_step(), .message = requests_.Describe(plan(), before, why, executors_)});
  }
  Load();
}

// ---- Another plan while it runs ---------------------------------------------------------------------------------------------------------

void RunState::Handle(const StageMeasured& event) {
  if (event.epoch != epoch() || !epoch_.runs()) return;
  codecs_.OnMeasured(event, plan(), queue_);
  replanner_.OnMeasured(event, epoch_, queue_);
  ConsiderPlanSwitch();
}

void RunState::ConsiderPlanSwitch() {
  if (!epoch_.runs() || stop_requested_ || !replanner_.MayAsk(last_step())) return;
  const bool late_joiners = measurement_.MeasureLateJoiners(executors_.LateJoiners(plan()), plan(), executors_, queue_);
  if (!replanner_.IsTimeToAsk(last_step(), late_joiners)) return;
  // A straggler is what spares are for; its device becomes one. And an executor that is missing.
  const bool with_spares = replanner_.monitor().AnyStraggler() || executors_.NeedsSpares(plan());
  Select(ComposeRequest(with_spares), DataStageSelector::Objective::kAnyPlan);
  AskNextAlternative();
}

bool RunState::AskNextAlternative() {
  std::optional<RequestPlan> ask = requests_.NextAlternative(executors_, measurement_);
  if (!ask.has_value()) return false;
  replanner_.Ask(*std::move(ask), epoch_, checkpoints_.shard_s(), queue_);
  return true;
}

void RunState::Handle(const AlternativePlanned& event) {
  if (!replanner_.OnAnswer(event.alternative)) return;
  std::vector<std::string> late_joiners = executors_.LateJoiners(plan());
  std::erase_if(late_joiners, [asked = requests_.devices_asked()](const std::string& name) {
    return std::find(asked.begin(), asked.end(), name) == asked.end();
  });
  if (!epoch_.runs() || stop_requested_ || (!replanner_.monitor().any_slow() && late_joiners.empty())) return;
  if (!event.plan.ok()) {
    requests_.Refused(event.refusal_reason, std::string(event.plan.status().message()));
    if (AskNextAlternative()) return;
    replanner_.OnRefused();
    replanner_.Decline(late_joiners, requests_.RefusalMessage(), last_step(), executors_, queue_);
    return;
  }
  requests_.Planned(*event.plan);
  RunPlan other = *event.plan;
  if (!executors_.AllPresent(other.devices)) return;
  std::string figures;
  switch (replanner_.DecideMigration(other, epoch_, checkpoints_.shard_s(), &figures)) {
    case MigrationPolicy::Decision::kStay:
      replanner_.Decline(late_joiners, absl::StrCat("another plan does not pay: ", figures), last_step(), executors_, queue_);
      return;
    case MigrationPolicy::Decision::kAskAgain:
      return;
    case MigrationPolicy::Decision::kMove:
      break;
  }
  Replanner::PlanSwitch next{.why = figures};
  if (!late_joiners.empty()) next.why = absl::StrCat("with ", absl::StrJoin(late_joiners, ", "), ", ", figures);
  if (measurement_.has_assumed_links()) {
    // It is asked for again, over the same devices, when the ways to them are measured.
    replanner_.NeedSpares(executors_.NeedsSpares(plan()));
  } else {
    requests_.SetExecutors(other, executors_);
    requests_.EmitDataStageSelected(last_step(), queue_);
    next.plan = std::move(other);
  }
  replanner_.Switch(std::move(next), epoch_, queue_);
}

void RunState::SwitchPlan() {
  std::optional<RunPlan> next = replanner_.TakeSwitch();
  if (next.has_value() && executors_.AllPresent(next->devices)) {
    Take(*std::move(next));
  } else {
    MeasureNext();
  }
}

}  // namespace fusionllm::broker
