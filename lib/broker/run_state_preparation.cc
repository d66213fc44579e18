// RunState: what happens before the first step of a plan: calibration, probes, the plan itself.
#include "lib/broker/run_state.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/broker/timeouts.h"
#include "lib/scheduler/plan_error_reasons.h"

namespace fusionllm::broker {
namespace {

// Both have reached the broker, whatever lies between their sites. Of two that meet there already that is no news.
std::string WayOut(const Member& a, const Member& b) {
  if (a.site == b.site || (a.at_relay && b.at_relay)) return "";
  return absl::StrFormat(
      "; %s and %s are two sites: where one cannot dial into the other, in Kubernetes spec.network.mode: Relay has executors meet at the "
      "broker",
      a.site, b.site);
}

}  // namespace

void RunState::AwaitMembers() {
  if (!awaits_lost_.empty()) {
    Await(options_.executor_timeout_s, "executors that were lost to come back");
    return;
  }
  const bool planned = !plan_.devices.empty();
  const bool open_without_data = options_.min_executors > 0 && data_was_here_ && LacksData();
  if (OnlyDataIsMissing()) {
    if (!data_wait_announced_) {  // mostly it comes in a moment: somebody is always the last
      Await(kDataWaitNoticeSeconds, "an executor with the training data to join");
      data_wait_notice_id_ = expect_id_;
      return;
    }
  } else if (!planned && ((begun_ && !Missing().empty()) || open_without_data)) {
    Await(options_.executor_timeout_s, "executors that were lost to be started again");
    return;
  }
  if (options_.min_executors == 0 && !options_.waits_for_executors) {
    Await(kGatherSeconds, "executors to join");
  } else {
    ++expect_id_;  // without a limit: a timer that still runs is about something else
  }
}

void RunState::EmitMissingData() {
  if (!OnlyDataIsMissing()) {  // any more
    AwaitMembers();
    return;
  }
  data_wait_announced_ = true;
  const double left_s = kGatherSeconds - kDataWaitNoticeSeconds;
  const bool limited = options_.min_executors == 0;
  // Each further join or loss renews it.
  EmitWaitingForData(limited ? absl::StrFormat("%g s without news at most", left_s) : "without a limit");
  if (limited) Await(left_s, "an executor with the training data to join");
}

// Measuring a model that has no room would end in executors that the kernel kills.
bool RunState::RefuseTooLarge() {
  // Who is missing may have what the others lack; of devices that are known the planner says more.
  const auto is_known = [this](const auto& member) { return profiles_.contains(member.first); };
  if (!IsComplete() || std::all_of(members_.begin(), members_.end(), is_known)) return false;
  std::vector<DeviceMemory> devices;
  for (const auto& [name, member] : members_) {
    if (!member.spare) devices.push_back({name, member.memory_bytes});
  }
  const std::string why = WhyTooLarge(options_.min_model_memory, devices);
  if (why.empty()) return false;
  if (!AwaitLost(absl::StrCat(scheduler::plan_errors::kInsufficientMemory, ": ", why))) {
    Fail(absl::ResourceExhaustedError(why), scheduler::plan_errors::kInsufficientMemory);
  }
  return true;
}

void RunState::CalibrateNext() {
  if (!plan_.devices.empty() && AwaitOrFailWithoutData(Then::kPlan)) return;
  begun_ = true;
  if (members_.empty()) {
    phase_ = Phase::kGathering;
    AwaitMembers();
    return;
  }
  if (plan_.devices.empty() && RefuseTooLarge()) return;
  const bool measures = Measures();
  if (!measures) {
    probing_.reset();  // what was being measured beside the run is measured again
    std::erase_if(links_, [this](const Link& link) { return assumed_links_.contains({link.src, link.dst}); });
    assumed_links_.clear();
  }
  if (probing_.has_value()) return;  // as below
  phase_ = Phase::kCalibrating;
  if (!calibrating_.empty()) {  // its answer leads on; another executor would be measured beside it
    if (!measures) Await(kCalibrateSeconds, absl::StrCat("calibration of ", calibrating_));
    return;
  }
  for (const auto& [name, member] : members_) {
    if (profiles_.contains(name)) continue;
    calibrating_ = name;
    Await(kCalibrateSeconds, absl::StrCat("calibration of ", name));
    Do(StartCalibration{name});
    return;
  }
  phase_ = Phase::kProbing;
  ProbeNext();
}

void RunState::Handle(const Calibrated& event) {
  if (!Present(event.name)) return;
  if (!event.status.ok()) {
    RejectUnfit(event.name, event.status);
    return;
  }
  if (event.name != calibrating_) return;
  calibrating_.clear();
  profiles_[event.name] = event.profile_document;
  if (Measures()) {
    CalibrateNext();
  } else {
    ConsiderPlanSwitch();
  }
}

// An executor says so when it is welcomed, in whatever phase the run is, or when it is asked to measure.
void RunState::RejectUnfit(const std::string& name, const absl::Status& why) {
  const Member member = members_.at(name);
  unfit_[name] = member.incarnation;
  if (!IsDispensable(member)) {
    Fail(absl::Status(why.code(), absl::StrCat("executor ", name, ": ", std::string(why.message()))),
         absl::IsResourceExhausted(why) ? scheduler::plan_errors::kInsufficientMemory : "");
    return;
  }
  const std::string sentence = absl::StrCat("it cannot take part: ", std::string(why.message()));
  const bool adopted = adopted_, planned = !plan_.devices.empty();
  if (adopted) {  // where losses are not reported at once
    Do(EmitEvent{.reason = "ExecutorLost", .step = last_step_, .message = absl::StrCat(name, ": ", sentence), .device = name});
  }
  // Who joined by himself may not know.
  if (!planned && options_.min_executors > 0) Do(Reject{.name = name, .why = sentence});
  Handle(Left{.name = name, .incarnation = member.incarnation, .why = sentence});
  if (adopted) {
    ResumeAdopted(/*time_is_up=*/false);
  } else if (phase_ == Phase::kGathering) {
    BeginWhenComplete();
  }
}

// Before the first plan an executor that is awaited by name, and is no spare, cannot be missed: what ails it (the job's data or back end)
// mostly ails all. Later the others go on, and the planner says whether they are enough.
bool RunState::IsDispensable(const Member& member) const {
  const bool planned = !plan_.devices.empty();
  const bool last_with_data =
      HasData(member.name) && std::all_of(options_.data_devices.begin(), options_.data_devices.end(),
                                          [&](const std::string& name) { return name == member.name || unfit_.contains(name); });
  if (!planned && (last_with_data || (!member.spare && options_.expected.contains(member.name)))) return false;
  // Of an open run anybody may come, with a broken device or a lie: the others wait for another one.
  if (!planned && options_.min_executors > 0) return true;
  if (phase_ == Phase::kGathering) {
    const bool others_come = std::any_of(options_.expected.begin(), options_.expected.end(),
                                         [this](const std::string& name) { return !Present(name) && !unfit_.contains(name); });
    if (others_come) return true;
  }
  const auto others = std::count_if(members_.begin(), members_.end(),
                                    [&](const auto& entry) { return entry.first != member.name && (planned || !entry.second.spare); });
  return others >= 1;
}

// The first pair of devices speaks for all that the same wire joins. A device with the data comes first: of machines that join it is
// the one where the broker is, so that what cannot be reached from there is at fault.
void RunState::ProbeNext() {
  const std::set<Wire> measured = MeasuredWires();
  std::vector<std::string> names;
  for (const auto& [name, member] : members_) names.push_back(name);
  std::stable_partition(names.begin(), names.end(), [this](const std::string& name) { return HasData(name); });
  for (const std::string& src : names) {
    for (const std::string& dst : names) {
      if (src == dst || measured.contains(WireOf(src, dst))) continue;
      probing_.emplace(src, dst);
      Await(kProbeSeconds, absl::StrFormat("probe of the link %s -> %s", src, dst));
      Do(StartLinkProbe{.src = src, .dst = dst});
      return;
    }
  }
  if (plan_.devices.empty() && !IsComplete()) {
    // Somebody was lost meanwhile. A plan without a device that is being started again would leave it idle, or be refused.
    phase_ = Phase::kGathering;
    AwaitMembers();
    return;
  }
  AskForPlan();
}

void RunState::Handle(const LinkProbed& event) {
  if (probing_ != std::pair(event.link.src, event.link.dst)) return;
  probing_.reset();
  if (!Measures()) {
    HandleProbeDuringRun(event);
    return;
  }
  if (!event.status.ok()) {
    ProbeFailed(event.link.src, event.link.dst, event.status);
    return;
  }
  probes_failed_.erase({event.link.src, event.link.dst});
  links_.push_back(event.link);
  CalibrateNext();  // those who have joined meanwhile; then the next pair
}

// A machine that joined by itself is turned away: what is wrong with its address is no reason to end the run of the others. An executor
// that is awaited by name cannot be missed.
void RunState::ProbeFailed(const std::string& src, const std::string& dst, const absl::Status& why) {
  // The end of the peer makes a probe fail as well, perhaps before the broker has noticed it: it will have, when the second one fails.
  if (++probes_failed_[{src, dst}].count == 1) {
    CalibrateNext();
    return;
  }
  const Member suspect = SuspectOf(src, dst);
  const std::string place = suspect.at_relay || suspect.data_address.empty() ? "" : absl::StrCat(" at ", suspect.data_address);
  const std::string cause = absl::StrFormat("probe %s -> %s: %s", src, dst, std::string(why.message()));
  if (HasData(suspect.name) || options_.expected.contains(suspect.name)) {
    const Member& other = members_.at(suspect.name == src ? dst : src);
    const std::string sentence =
        absl::StrFormat("%s cannot reach %s%s (%s)%s", other.name, suspect.name, place, cause, WayOut(other, suspect));
    if (!ProbeAgainLater(src, dst, sentence)) Fail(absl::UnavailableError(sentence));
    return;
  }
  std::string sentence = absl::StrFormat("rejected: the other machines cannot reach %s%s (%s); check ", suspect.name,
                                         suspect.at_relay ? " at the broker" : place, cause);
  absl::StrAppend(&sentence, suspect.at_relay ? "its connection to the machine that started the run"
                                              : "that they can dial what it gives as --advertise, or else as --listen, and that this leads "
                                                "to its --listen; without --listen it need not be dialled");
  unfit_[suspect.name] = suspect.incarnation;
  Do(Reject{.name = suspect.name, .why = sentence});
  Handle(Left{.name = suspect.name, .incarnation = suspect.incarnation, .why = std::move(sentence)});
}

// The network between two sites may be cut for a while. False: it has been waited for long enough, or this run does not wait.
bool RunState::ProbeAgainLater(const std::string& src, const std::string& dst, const std::string& why) {
  FailedProbes& failed = probes_failed_.at({src, dst});
  if (!options_.waits_for_executors || failed.waited_s >= options_.executor_timeout_s) return false;
  if (failed.waited_s == 0) {  // once for all its tries
    Do(EmitEvent{
        .reason = "ProbeFailed",
        .step = last_step_,
        .message = absl::StrFormat("%s; it is tried again, with pauses of %g s in all at most", why, options_.executor_timeout_s)});
  }
  const double wait_s = std::min(RetrySeconds(failed.count - 1), options_.executor_timeout_s - failed.waited_s);
  failed.waited_s += wait_s;
  Await(wait_s, "the next probe");
  return true;
}

// A probe is answered over the way back, so that either end may be at fault: not the device with the data, which is where the broker is,
// and rather one that must be dialled than one that dials out itself.
const Member& RunState::SuspectOf(const std::string& src, const std::string& dst) const {
  const Member &sender = members_.at(src), &receiver = members_.at(dst);
  if (HasData(dst)) return sender;
  if (HasData(src)) return receiver;
  return receiver.at_relay && !sender.at_relay ? sender : receiver;
}

std::set<RunState::Wire> RunState::MeasuredWires() const {
  std::set<Wire> measured;
  for (const Link& link : links_) {
    if (Present(link.src) && Present(link.dst)) measured.insert(WireOf(link.src, link.dst));
  }
  return measured;
}

void RunState::AskForPlan() {
  phase_ = Phase::kPlanning;
  asks_for_figures_ = joined_since_asked_ = false;
  // Under a plan everybody stands still until there is another: the first that is possible will do.
  StartSelection(PlanQuestion(/*with_spares=*/plan_is_stale_),
                 plan_.devices.empty() ? DataStageSelector::Objective::kShortestStep : DataStageSelector::Objective::kAnyPlan);
  AskNextPlan();
}

void RunState::AskNextPlan() {
  std::optional<RequestPlan> ask = data_stage_selector_.Next();
  if (!ask.has_value()) {
    TakeSelectedPlan();
    return;
  }
  Await(data_stage_selector_.has_plan() ? kComparisonSeconds : kPlanSeconds, "the scheduler");
  ask->id = ++plans_asked_;
  Do(*std::move(ask));
}

void RunState::TakeSelectedPlan() {
  if (!data_stage_selector_.has_plan() && joined_since_asked_) {
    CalibrateNext();
    return;
  }
  if (!data_stage_selector_.has_plan()) {
    const std::string refusal = absl::StrCat(data_stage_selector_.RefusalReason(), ": ", data_stage_selector_.RefusalMessage());
    if (data_stage_selector_.RefusalReason() != kSchedulerFailed && AwaitLost(refusal)) return;
    Fail(absl::ResourceExhaustedError(data_stage_selector_.RefusalMessage()), data_stage_selector_.RefusalReason());
    return;
  }
  EmitDataStageSelected();
  NoteAsked(data_stage_selector_.question());
  PlanSummary plan = data_stage_selector_.plan();
  plan.executors = executors_asked_;
  plan.wanted = Wanted();
  Take(std::move(plan));
}

void RunState::Handle(const Planned& event) {
  if (phase_ != Phase::kPlanning || event.id != plans_asked_) return;
  if (asks_for_figures_) {
    TakeFigures(event.plan);
  } else {
    data_stage_selector_.Planned(event.plan);
    AskNextPlan();
  }
}

std::string RunState::LessThanAskedFor() const {
  std::vector<std::string> less;
  if (plan_.stages() < options_.stages_asked)
    less.push_back(absl::StrCat("stages than spec.strategy.stages, ", options_.stages_asked, ","));
  if (ExecutorsHere() < options_.executors_asked) {
    less.push_back(absl::StrCat("executors than spec.executors.min, ", options_.executors_asked, ","));
  }
  if (less.empty()) return "";
  return absl::StrCat("; fewer ", absl::StrJoin(less, " and fewer "), less.size() > 1 ? " ask for" : " asks for",
                      ", since executors were lost");
}

void RunState::Take(PlanSummary plan) {
  for (const std::string& device : plan.devices) {
    if (Present(device)) continue;  // after a loss another question would have been asked
    Fail(absl::InternalError(absl::StrCat("the plan uses ", device, ", which is no executor of this run")));
    return;
  }
  const bool again = epoch_ > 0 && !plan_.devices.empty();
  // No plan with that of the run fitted the memory that is left.
  const int64_t size_before = plan_.micro_batch_size > 0 ? plan_.micro_batch_size : options_.micro_batch_size;
  std::string other_size;
  if (again && size_before > 0 && plan.micro_batch_size > 0 && plan.micro_batch_size != size_before) {
    other_size = absl::StrFormat(", with micro-batches of %d instead of %d, which no longer fit: losses have other bits from here on",
                                 plan.micro_batch_size, size_before);
  }
  plan_ = std::move(plan);
  plan_is_stale_ = codecs_are_stale_ = false;
  slowness_ = slowness_asked_;
  considered_.insert(devices_asked_.begin(), devices_asked_.end());
  if (again) {
    Do(EmitEvent{.reason = "Replanned",
                 .step = last_step_,
                 .message = absl::StrFormat("%s%s on %s%s%s%s%s", plan_.replicas > 1 ? absl::StrCat(plan_.replicas, " replicas of ") : "",
                                            base::Pluralize(plan_.stages(), "stage"), absl::StrJoin(plan_.devices, ", "), other_size,
                                            plan_switch_reason_.empty() ? "" : ": ", plan_switch_reason_, LessThanAskedFor())});
  }
  plan_switch_reason_.clear();
  Load();
}

void RunState::Handle(const PlanRefused& event) {
  if (phase_ != Phase::kPlanning || event.id != plans_asked_) return;
  if (asks_for_figures_ && event.reason == kSchedulerFailed) {
    LoadOnSpares(/*figures_are_theirs=*/false);  // the stages are what they were, whatever ails the scheduler
  } else if (asks_for_figures_) {
    // They cannot run there: too little memory, a link that is missing, a device that the job does not want.
    asks_for_figures_ = false;
    activated_.clear();
    plan_is_stale_ = true;
    CalibrateNext();
  } else {
    data_stage_selector_.Refused(event.reason, event.message);
    AskNextPlan();
  }
}

}  // namespace fusionllm::broker
