// RunState: what the run does about itself. Stages and links that fall behind the plan are told, and answered with another plan where that
// pays. (Codecs: run_state_codecs.cc.)
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

void RunState::BeginWatch() {
  using Ends = std::pair<std::string, std::string>;
  const auto figures_of = [this](const std::string& src, const std::string& dst) {
    const Link* link = LinkBetween(src, dst);
    return link == nullptr ? PlanWatch::LinkFigures() : PlanWatch::LinkFigures{link->bytes_per_s, link->rtt_s};
  };
  // Inside a site every device has a port of its own.
  const auto shares_wire = [this](const Ends& a, const Ends& b) {
    const Wire wire = WireOf(a.first, a.second);
    const bool ports = std::get<0>(wire) == "sites" && std::get<1>(wire) == std::get<2>(wire);
    return WireOf(b.first, b.second) == wire && (!ports || a.first == b.first || a.second == b.second);
  };
  watch_.Begin(plan_, figures_of, shares_wire);
  trend_.Reset();
  told_of_trend_ = false;
  awaits_alternative_ = false;
}

void RunState::Handle(const StageMeasured& event) {
  if (event.epoch != epoch_ || phase_ != Phase::kRunning) return;
  TakeBackoffs(event);
  Tell(watch_.On(event));
  ConsiderMoving();
}

void RunState::Tell(const std::vector<Drift>& drifts) {
  for (const Drift& drift : drifts) {
    const bool straggler = drift.kind == Drift::Kind::kStraggler;
    Announce told{.step = last_step_,
                  .message = drift.message,
                  .device = drift.device,
                  .peer = drift.peer,
                  .measured = drift.measured,
                  .planned = drift.planned};
    if (straggler) SetPlace(SeatOf(drift.device), told);
    if (drift.recovered) {
      told.reason = straggler ? "StragglerRecovered" : "LinkRecovered";
    } else {
      told.reason = straggler ? "Straggler" : "LinkDegraded";
      if (!options_.checkpoints) told.message += kNoCheckpoints;
    }
    Do(std::move(told));
  }
}

// ---- Another plan -----------------------------------------------------------------------------------------------------------------------

AskPlan RunState::PlanQuestion(bool with_spares) {
  AskPlan ask{.again = epoch_ > 0,
              .micro_batch_size = plan_.micro_batch_size > 0 ? plan_.micro_batch_size : options_.micro_batch_size,
              .codec_limit = codec_limit(),
              .slowness = slowness_};
  for (const auto& [name, member] : members_) {
    if (!member.spare || with_spares || StageOf(name) >= 0) ask.devices.push_back(name);
  }
  for (const auto& [device, factor] : watch_.Slowness()) {
    double& known = ask.slowness.try_emplace(device, 1).first->second;
    known = std::max(1.0, known * factor);
  }
  most_trainers_ = std::max(most_trainers_, Trainers());
  for (const auto& [ends, bytes_per_s] : watch_.SlowLinks()) {
    if (Link* const link = LinkBetween(ends.first, ends.second); link != nullptr) link->bytes_per_s = bytes_per_s;
  }
  slowness_asked_ = ask.slowness;
  return ask;
}

void RunState::BeginChoice(AskPlan question, ReaderChoice::Wish wish) {
  std::vector<ReaderChoice::Reader> readers = ReadersFor(question);
  // Nobody of those who have the data may train, which the planner says of any of them.
  if (readers.empty() && !options_.data_devices.empty()) question.data_device = *options_.data_devices.begin();
  choice_ = ReaderChoice(std::move(question), std::move(readers), wish);
}

// Read by what is taken of the answer.
void RunState::NoteAsked(const AskPlan& ask) {
  devices_asked_ = ask.devices;
  std::erase_if(devices_asked_, [this](const std::string& name) { return !profiles_.contains(name); });
  executors_asked_ = static_cast<int>(
      std::count_if(devices_asked_.begin(), devices_asked_.end(), [this](const std::string& name) { return MayTrain(members_.at(name)); }));
}

void RunState::TellChoice() {
  std::string account = choice_.Account();
  if (account.empty()) return;
  Do(Announce{.reason = "DataReaderChosen", .step = last_step_, .message = std::move(account), .device = choice_.reader()});
}

// A checkpoint, a restart, a restore, and steps that fill the pipeline of the new plan.
double RunState::MoveSeconds(const PlanSummary& to) const { return load_s_ + shard_s_ + kMoveSeconds + kWarmUpSteps * to.predicted_step_s; }

void RunState::ConsiderMoving() {
  if (!options_.checkpoints || phase_ != Phase::kRunning || renewal_.has_value() || stop_asked_ || awaits_alternative_) return;
  if (last_step_ + kWarmUpSteps >= options_.total_steps || !watch_.AsksForAlternative(last_step_, NewcomersAreMeasured())) return;
  // A straggler is what spares are for; its device becomes one. And an executor that is missing.
  BeginChoice(PlanQuestion(/*with_spares=*/watch_.AnyStraggler() || SparesAreNeeded()), ReaderChoice::Wish::kAnyPlan);
  AskNextAlternative();
}

bool RunState::AskNextAlternative() {
  std::optional<AskPlan> ask = choice_.Next();
  if (!ask.has_value()) return false;
  std::erase_if(ask->devices, [this](const std::string& name) { return !Present(name); });  // lost since the question before
  NoteAsked(*ask);
  ask->alternative = ++alternatives_asked_;
  ask->in_force = watch_.InForce(last_step_, options_.total_steps, MoveSeconds(plan_));
  awaits_alternative_ = true;
  Do(*std::move(ask));
  return true;
}

void RunState::Handle(const AlternativePlanned& event) {
  if (event.alternative != alternatives_asked_ || !awaits_alternative_) return;
  awaits_alternative_ = false;
  std::vector<std::string> newcomers = Newcomers();
  std::erase_if(newcomers, [this](const std::string& name) {
    return std::find(devices_asked_.begin(), devices_asked_.end(), name) == devices_asked_.end();
  });
  if (phase_ != Phase::kRunning || renewal_.has_value() || stop_asked_ || (!watch_.drifting() && newcomers.empty())) return;
  if (event.plan.ok()) {
    choice_.Planned(*event.plan);
  } else {
    choice_.Refused(event.refusal_reason, std::string(event.plan.status().message()));
    if (AskNextAlternative()) return;
    watch_.Doubt();
    KeepPlan(newcomers, choice_.RefusalMessage());
    return;
  }
  PlanSummary other = *event.plan;
  if (!std::all_of(other.devices.begin(), other.devices.end(), [this](const std::string& device) { return Present(device); })) return;
  std::string figures;
  switch (watch_.Judge(other, last_step_, options_.total_steps, MoveSeconds(other), &figures)) {
    case MigrationJudge::Verdict::kStay:
      KeepPlan(newcomers, absl::StrCat("another plan does not pay: ", figures));
      return;
    case MigrationJudge::Verdict::kAskAgain:
      return;
    case MigrationJudge::Verdict::kMove:
      break;
  }
  Renewal renewal{.why = newcomers.empty() ? figures : absl::StrCat("with ", absl::StrJoin(newcomers, ", "), ", ", figures)};
  other.executors = executors_asked_;
  other.wanted = Wanted();
  if (assumed_links_.empty()) {
    TellChoice();
    renewal.plan = std::move(other);
  } else {
    plan_is_stale_ = SparesAreNeeded();  // asked for again, over the same devices, when the ways to them are measured
  }
  EndEpochFor(std::move(renewal));
}

// The planner's last word on who has come: they are told why they idle, and not asked about again.
void RunState::KeepPlan(const std::vector<std::string>& newcomers, absl::string_view why) {
  if (newcomers.empty()) return;
  considered_.insert(newcomers.begin(), newcomers.end());
  Do(Announce{
      .reason = "PlanKept",
      .step = last_step_,
      .message = absl::StrFormat("%s %s: %s", absl::StrJoin(newcomers, ", "), newcomers.size() == 1 ? "stays a spare" : "stay spares", why),
      .device = newcomers.front()});
}

void RunState::EndEpochFor(Renewal renewal) {
  renewal_ = std::move(renewal);
  Do(SendStop{.name = plan_.devices[0], .epoch = epoch_});
}

// A broker that was restarted in between has forgotten why, and asks for a plan.
bool RunState::EndedForAnotherPlan() const {
  if (stop_asked_ || !ReplicaZeroHasEnded()) return false;
  return std::all_of(ended_at_.begin(), ended_at_.end(), [this](const auto& end) { return end.second < options_.total_steps; });
}

void RunState::Renew() {
  Renewal renewal = renewal_.value_or(Renewal());
  renewal_.reset();
  const bool usable = renewal.plan.has_value() && std::all_of(renewal.plan->devices.begin(), renewal.plan->devices.end(),
                                                              [this](const std::string& device) { return Present(device); });
  renewal_why_ = std::move(renewal.why);
  if (!usable) {
    CalibrateNext();
    return;
  }
  Take(*std::move(renewal.plan));
}

}  // namespace fusionllm::broker
