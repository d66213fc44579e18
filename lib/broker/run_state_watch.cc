// RunState: what the run does about itself. Stages and links that fall behind the plan are reported, and answered with another plan where
// that pays. (Codecs: run_state_codecs.cc.)
//
// Either way the epoch ends at the boundary of a step with a checkpoint, so that nothing is lost, and the next plan begins from there. A
// run without checkpoints would lose all its steps: it only tells.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lib/broker/run_state.h"
#include "lib/compression/spec.h"

namespace fusionllm::broker {
namespace {

// Of a move, besides what is measured: to stop, to commit, to plan and to warm up.
constexpr double kMoveSeconds = 2;
constexpr int kWarmUpSteps = 2;

constexpr char kNoCheckpoints[] = "; the job keeps no checkpoints, so that another plan would cost every step made: the plan stays";

}  // namespace

std::string RunState::codec_limit() const { return codec_limit_.has_value() ? compression::ToString(*codec_limit_) : ""; }

const std::string& RunState::SiteOf(const std::string& name) const {
  static const std::string kNowhere;
  const auto found = members_.find(name);
  return found == members_.end() ? kNowhere : found->second.site;
}

RunState::Wire RunState::WireOf(const std::string& src, const std::string& dst) const {
  const auto line = options_.lines.find({src, dst});
  return line != options_.lines.end() ? Wire("line", line->second, "") : Wire("sites", SiteOf(src), SiteOf(dst));
}

Link* RunState::LinkBetween(const std::string& src, const std::string& dst) {
  const auto found =
      std::find_if(links_.begin(), links_.end(), [&](const Link& link) { return WireOf(link.src, link.dst) == WireOf(src, dst); });
  return found == links_.end() ? nullptr : &*found;
}

void RunState::StartPlanMonitor() {
  using Ends = std::pair<std::string, std::string>;
  const auto figures_of = [this](const std::string& src, const std::string& dst) {
    const Link* link = LinkBetween(src, dst);
    return link == nullptr ? PlanMonitor::LinkFigures() : PlanMonitor::LinkFigures{link->bytes_per_s, link->rtt_s};
  };
  // Inside a site every device has a port of its own.
  const auto shares_wire = [this](const Ends& a, const Ends& b) {
    const Wire wire = WireOf(a.first, a.second);
    const bool ports = std::get<0>(wire) == "sites" && std::get<1>(wire) == std::get<2>(wire);
    return WireOf(b.first, b.second) == wire && (!ports || a.first == b.first || a.second == b.second);
  };
  plan_monitor_.Begin(plan_, figures_of, shares_wire);
  trend_.Reset();
  trend_warning_emitted_ = false;
  awaits_alternative_ = false;
}

void RunState::Handle(const StageMeasured& event) {
  if (event.epoch != epoch_ || phase_ != Phase::kRunning) return;
  TakeBackoffs(event);
  EmitDrifts(plan_monitor_.On(event));
  ConsiderPlanSwitch();
}

void RunState::EmitDrifts(const std::vector<Drift>& drifts) {
  for (const Drift& drift : drifts) {
    const bool straggler = drift.kind == Drift::Kind::kStraggler;
    EmitEvent drift_event{.step = last_step_,
                          .message = drift.message,
                          .device = drift.device,
                          .peer = drift.peer,
                          .measured = drift.measured,
                          .planned = drift.planned};
    if (straggler) SetStageAndReplica(RankOf(drift.device), drift_event);
    if (drift.recovered) {
      drift_event.reason = straggler ? "StragglerRecovered" : "LinkRecovered";
    } else {
      drift_event.reason = straggler ? "Straggler" : "LinkDegraded";
      if (!options_.checkpoints) drift_event.message += kNoCheckpoints;
    }
    Do(std::move(drift_event));
  }
}

// ---- Another plan -----------------------------------------------------------------------------------------------------------------------

RequestPlan RunState::PlanQuestion(bool with_spares) {
  RequestPlan ask{.again = epoch_ > 0,
                  .micro_batch_size = plan_.micro_batch_size > 0 ? plan_.micro_batch_size : options_.micro_batch_size,
                  .codec_limit = codec_limit(),
                  .slowness = slowness_};
  for (const auto& [name, member] : members_) {
    if (!member.spare || with_spares || StageOf(name) >= 0) ask.devices.push_back(name);
  }
  for (const auto& [device, factor] : plan_monitor_.Slowness()) {
    double& known = ask.slowness.try_emplace(device, 1).first->second;
    known = std::max(1.0, known * factor);
  }
  most_trainers_ = std::max(most_trainers_, Trainers());
  for (const auto& [ends, bytes_per_s] : plan_monitor_.SlowLinks()) {
    if (Link* const link = LinkBetween(ends.first, ends.second); link != nullptr) link->bytes_per_s = bytes_per_s;
  }
  slowness_asked_ = ask.slowness;
  return ask;
}

void RunState::StartSelection(RequestPlan question, DataStageSelector::Objective objective) {
  std::vector<DataStageSelector::Reader> readers = ReadersFor(question);
  // None of those who have the data may train, which the planner says of any of them.
  if (readers.empty() && !options_.data_devices.empty()) question.data_device = *options_.data_devices.begin();
  data_stage_selector_ = DataStageSelector(std::move(question), std::move(readers), objective);
}

// Read by what is taken of the answer.
void RunState::NoteAsked(const RequestPlan& ask) {
  devices_asked_ = ask.devices;
  std::erase_if(devices_asked_, [this](const std::string& name) { return !profiles_.contains(name); });
  executors_asked_ = static_cast<int>(
      std::count_if(devices_asked_.begin(), devices_asked_.end(), [this](const std::string& name) { return MayTrain(members_.at(name)); }));
}

void RunState::EmitDataStageSelected() {
  std::string account = data_stage_selector_.Account();
  if (account.empty()) return;
  Do(EmitEvent{.reason = "DataStageSelected", .step = last_step_, .message = std::move(account), .device = data_stage_selector_.reader()});
}

// A checkpoint, a restart, a restore, and steps that fill the pipeline of the new plan.
double RunState::PlanSwitchSeconds(const PlanSummary& to) const {
  return load_s_ + shard_s_ + kMoveSeconds + kWarmUpSteps * to.predicted_step_s;
}

void RunState::ConsiderPlanSwitch() {
  if (!options_.checkpoints || phase_ != Phase::kRunning || plan_switch_.has_value() || stop_asked_ || awaits_alternative_) return;
  if (last_step_ + kWarmUpSteps >= options_.total_steps || !plan_monitor_.AsksForAlternative(last_step_, LateJoinersAreMeasured())) return;
  // A straggler is what spares are for; its device becomes one. And an executor that is missing.
  StartSelection(PlanQuestion(/*with_spares=*/plan_monitor_.AnyStraggler() || SparesAreNeeded()), DataStageSelector::Objective::kAnyPlan);
  AskNextAlternative();
}

bool RunState::AskNextAlternative() {
  std::optional<RequestPlan> ask = data_stage_selector_.Next();
  if (!ask.has_value()) return false;
  std::erase_if(ask->devices, [this](const std::string& name) { return !Present(name); });  // lost since the question before
  NoteAsked(*ask);
  ask->alternative = ++alternatives_asked_;
  ask->in_force = plan_monitor_.InForce(last_step_, options_.total_steps, PlanSwitchSeconds(plan_));
  awaits_alternative_ = true;
  Do(*std::move(ask));
  return true;
}

void RunState::Handle(const AlternativePlanned& event) {
  if (event.alternative != alternatives_asked_ || !awaits_alternative_) return;
  awaits_alternative_ = false;
  std::vector<std::string> late_joiners = LateJoiners();
  std::erase_if(late_joiners, [this](const std::string& name) {
    return std::find(devices_asked_.begin(), devices_asked_.end(), name) == devices_asked_.end();
  });
  if (phase_ != Phase::kRunning || plan_switch_.has_value() || stop_asked_ || (!plan_monitor_.drifting() && late_joiners.empty())) return;
  if (event.plan.ok()) {
    data_stage_selector_.Planned(*event.plan);
  } else {
    data_stage_selector_.Refused(event.refusal_reason, std::string(event.plan.status().message()));
    if (AskNextAlternative()) return;
    plan_monitor_.ResetMigration();
    DeclineLateJoiners(late_joiners, data_stage_selector_.RefusalMessage());
    return;
  }
  PlanSummary other = *event.plan;
  if (!std::all_of(other.devices.begin(), other.devices.end(), [this](const std::string& device) { return Present(device); })) return;
  std::string figures;
  switch (plan_monitor_.Judge(other, last_step_, options_.total_steps, PlanSwitchSeconds(other), &figures)) {
    case MigrationJudge::Verdict::kStay:
      DeclineLateJoiners(late_joiners, absl::StrCat("another plan does not pay: ", figures));
      return;
    case MigrationJudge::Verdict::kAskAgain:
      return;
    case MigrationJudge::Verdict::kMove:
      break;
  }
  PlanSwitch plan_switch{.why = late_joiners.empty() ? figures : absl::StrCat("with ", absl::StrJoin(late_joiners, ", "), ", ", figures)};
  other.executors = executors_asked_;
  other.wanted = Wanted();
  if (assumed_links_.empty()) {
    EmitDataStageSelected();
    plan_switch.plan = std::move(other);
  } else {
    plan_is_stale_ = SparesAreNeeded();  // asked for again, over the same devices, when the ways to them are measured
  }
  EndEpochForPlanSwitch(std::move(plan_switch));
}

// The planner's last word on who has come: they get the reason why they idle, and not asked about again.
void RunState::DeclineLateJoiners(const std::vector<std::string>& late_joiners, absl::string_view why) {
  if (late_joiners.empty()) return;
  considered_.insert(late_joiners.begin(), late_joiners.end());
  Do(EmitEvent{.reason = "ReplanDeclined",
               .step = last_step_,
               .message = absl::StrFormat("%s %s: %s", absl::StrJoin(late_joiners, ", "),
                                          late_joiners.size() == 1 ? "stays a spare" : "stay spares", why),
               .device = late_joiners.front()});
}

void RunState::EndEpochForPlanSwitch(PlanSwitch plan_switch) {
  plan_switch_ = std::move(plan_switch);
  Do(SendStop{.name = plan_.devices[0], .epoch = epoch_});
}

// A broker that was restarted in between has forgotten why, and asks for a plan.
bool RunState::EndedForAnotherPlan() const {
  if (stop_asked_ || !ReplicaZeroHasEnded()) return false;
  return std::all_of(ended_at_.begin(), ended_at_.end(), [this](const auto& end) { return end.second < options_.total_steps; });
}

void RunState::SwitchPlan() {
  PlanSwitch plan_switch = plan_switch_.value_or(PlanSwitch());
  plan_switch_.reset();
  const bool usable = plan_switch.plan.has_value() && std::all_of(plan_switch.plan->devices.begin(), plan_switch.plan->devices.end(),
                                                                  [this](const std::string& device) { return Present(device); });
  plan_switch_reason_ = std::move(plan_switch.why);
  if (!usable) {
    CalibrateNext();
    return;
  }
  Take(*std::move(plan_switch.plan));
}

}  // namespace fusionllm::broker
