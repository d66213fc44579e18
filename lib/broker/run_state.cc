#include "lib/broker/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace fusionllm::broker {
namespace {

// Bounds on what is waited for. Only a peer that makes no progress at all meets them: each is renewed by news.
constexpr double kGatherSeconds = 120;
constexpr double kRejoinSeconds = 20;  // executors redial every second at least
constexpr double kCalibrateSeconds = 300;
constexpr double kProbeSeconds = 120;
constexpr double kPlanSeconds = 300;
constexpr double kLoadSeconds = 900;
constexpr double kDrainSeconds = 20;
constexpr double kFirstStepSeconds = 900;
constexpr double kFinishSeconds = 600;
// A step may include an evaluation or a checkpoint, so that the bound is generous; a dead process is noticed by its broken stream at once.
constexpr double kStepPatience = 30;
constexpr double kStepSecondsMin = 60;

// Errors that another try may cure: somebody was lost, or the network was.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
}

}  // namespace

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
      profiles_(options_.known_profiles),
      links_(options_.known_links),
      epoch_(options_.last_epoch),
      last_step_(options_.start_step),
      checkpoint_step_(options_.start_step),
      checkpoint_path_(options_.start_checkpoint) {}

void RunState::Adopt(uint32_t epoch, PlanSummary plan, std::map<std::string, std::string> profiles, std::vector<Link> links,
                     int64_t last_step, std::vector<ShardWritten> shards, std::map<std::string, int64_t> ended_at) {
  epoch_ = epoch;
  plan_ = std::move(plan);
  profiles_ = std::move(profiles);
  links_ = std::move(links);
  last_step_ = last_step;
  for (ShardWritten& shard : shards) shards_[shard.step][shard.stage] = std::move(shard);
  ended_at_ = std::move(ended_at);
  adopted_ = true;
  waiting_ = {plan_.devices.begin(), plan_.devices.end()};
}

std::vector<Action> RunState::On(const Event& event) {
  actions_.clear();
  if (phase_ != Phase::kDone && phase_ != Phase::kFailed) {
    std::visit([this](const auto& e) { Handle(e); }, event);
  }
  return std::move(actions_);
}

void RunState::Await(double seconds, std::string what) { Do(Expect{.id = ++expect_id_, .seconds = seconds, .what = std::move(what)}); }

void RunState::Fail(absl::Status status, std::string refusal_reason) {
  for (const std::string& device : plan_.devices) {
    if (Present(device)) Do(SendAbort{.name = device, .epoch = epoch_, .why = std::string(status.message())});
  }
  phase_ = Phase::kFailed;
  Do(Finish{.status = std::move(status), .refusal_reason = std::move(refusal_reason)});
}

int RunState::StageOf(const std::string& name) const {
  const auto found = std::find(plan_.devices.begin(), plan_.devices.end(), name);
  return found == plan_.devices.end() ? -1 : static_cast<int>(found - plan_.devices.begin());
}

// ---- Membership -------------------------------------------------------------------------------------------------------------------------

void RunState::Handle(const Joined& event) {
  const Member& member = event.member;
  const auto previous = members_.find(member.name);
  const bool same_process = previous != members_.end() && previous->second.incarnation == member.incarnation;
  if (previous != members_.end() && !same_process) {
    // A restarted executor: its former life is over before the new one begins.
    Handle(Left{.name = member.name, .incarnation = previous->second.incarnation, .why = "restarted"});
    if (phase_ == Phase::kFailed) return;
  }
  members_[member.name] = member;
  if (adopted_) {
    if (event.epoch == epoch_) {
      waiting_.erase(member.name);
    } else if (StageOf(member.name) >= 0) {
      adopted_epoch_is_over_ = true;
    }
    TakeUpAdopted(/*time_is_up=*/false);
    return;
  }
  if (phase_ != Phase::kGathering) {
    if (!same_process) {
      Do(Announce{.reason = "ExecutorJoined",
                  .step = last_step_,
                  .message = absl::StrCat(member.name, " joined the backup pool"),
                  .device = member.name,
                  .pid = member.pid});
    }
    return;
  }
  const bool known = !options_.expected.empty() || options_.min_executors > 0;
  const auto executors = std::count_if(members_.begin(), members_.end(), [](const auto& entry) { return !entry.second.spare; });
  const bool complete =
      known && executors >= options_.min_executors &&
      std::all_of(options_.expected.begin(), options_.expected.end(), [this](const std::string& name) { return Present(name); });
  if (complete) {
    CalibrateNext();
  } else {
    AwaitMembers();
  }
}

// After a restart of the broker: go on with the epoch when all its stages have come back. When one cannot, drain; but not before everybody
// had the time to come back, or a device that is still dialling would be taken for lost.
void RunState::TakeUpAdopted(bool time_is_up) {
  for (const auto& [step, shards] : std::map<int64_t, std::map<int, ShardWritten>>(shards_)) CommitIfComplete(step);
  if (waiting_.empty() && !adopted_epoch_is_over_) {
    adopted_ = false;
    phase_ = Phase::kRunning;
    Await(kFirstStepSeconds, "a step after the broker came back");
    if (stop_asked_) Do(SendStop{plan_.devices[0]});
    FinishWhenAllEnded();
    return;
  }
  const auto all_here = [this](const auto& names) {
    return std::all_of(names.begin(), names.end(), [this](const std::string& name) { return Present(name); });
  };
  if (!time_is_up && !(adopted_epoch_is_over_ && all_here(plan_.devices) && all_here(options_.expected))) {
    if (members_.size() <= 1) Await(kRejoinSeconds, "executors to come back");
    return;
  }
  adopted_ = false;
  for (size_t stage = 0; stage < plan_.devices.size(); ++stage) {
    const std::string& name = plan_.devices[stage];
    if (Present(name)) continue;
    Do(Announce{.reason = "ExecutorLost",
                .step = last_step_,
                .message = absl::StrFormat("%s (stage %d) was lost while the broker was away, after step %d", name, stage, last_step_),
                .device = name,
                .stage = static_cast<int>(stage)});
  }
  Drain("the plan epoch did not outlive the broker");
}

void RunState::Handle(const GatheringOver& event) {
  if (phase_ == Phase::kGathering && !adopted_ && !members_.empty()) CalibrateNext();
}

void RunState::Handle(const Left& event) {
  const auto found = members_.find(event.name);
  if (found == members_.end() || found->second.incarnation != event.incarnation) return;
  members_.erase(found);
  const int stage = StageOf(event.name);
  if (adopted_) {  // it may come back yet
    if (stage >= 0) waiting_.insert(event.name);
    return;
  }
  if (phase_ == Phase::kFinishing && shards_.empty() && committing_.empty()) return;
  const std::string role = stage < 0 ? "no stage" : absl::StrCat("stage ", stage);
  Announce lost{.reason = "ExecutorLost",
                .step = last_step_,
                .message = absl::StrFormat("%s (%s) was lost after step %d: %s", event.name, role, last_step_, event.why),
                .device = event.name};
  if (stage >= 0) lost.stage = stage;
  Do(std::move(lost));
  switch (phase_) {
    case Phase::kGathering:
      break;
    case Phase::kCalibrating:
    case Phase::kProbing:
    case Phase::kPlanning:
      CalibrateNext();
      break;
    case Phase::kLoading:
    case Phase::kRunning:
    case Phase::kFinishing:
      if (stage >= 0) Drain(absl::StrCat(event.name, " was lost"));
      break;
    case Phase::kDraining:
      DrainedOne(event.name);
      break;
    case Phase::kDone:
    case Phase::kFailed:
      break;
  }
}

// ---- Before the first step --------------------------------------------------------------------------------------------------------------

void RunState::AwaitMembers() {
  if (options_.min_executors == 0) Await(kGatherSeconds, "executors to join");
}

void RunState::CalibrateNext() {
  if (members_.empty()) {
    phase_ = Phase::kGathering;
    AwaitMembers();
    return;
  }
  phase_ = Phase::kCalibrating;
  for (const auto& [name, member] : members_) {
    if (profiles_.contains(name)) continue;
    Await(kCalibrateSeconds, absl::StrCat("calibration of ", name));
    Do(AskCalibrate{name});
    return;
  }
  // One pair for each ordered pair of sites and one inside each site: a link between sites is one resource whoever uses it.
  std::map<std::string, std::vector<std::string>> by_site;
  for (const auto& [name, member] : members_) by_site[member.site].push_back(name);
  const auto known = [this](const std::string& from_site, const std::string& to_site) {
    return std::any_of(links_.begin(), links_.end(), [&](const Link& link) {
      const auto src = members_.find(link.src), dst = members_.find(link.dst);
      return src != members_.end() && dst != members_.end() && src->second.site == from_site && dst->second.site == to_site;
    });
  };
  probes_left_.clear();
  for (const auto& [from, from_names] : by_site) {
    for (const auto& [to, to_names] : by_site) {
      if (from == to && from_names.size() < 2) continue;
      if (!known(from, to)) probes_left_.emplace_back(from_names[0], from == to ? to_names[1] : to_names[0]);
    }
  }
  phase_ = Phase::kProbing;
  ProbeNext();
}

void RunState::Handle(const Calibrated& event) {
  if (!event.status.ok()) {
    Fail(absl::Status(event.status.code(), absl::StrCat("executor ", event.name, ": ", std::string(event.status.message()))));
    return;
  }
  profiles_[event.name] = event.profile_document;
  if (phase_ == Phase::kCalibrating) CalibrateNext();
}

void RunState::ProbeNext() {
  if (probes_left_.empty()) {
    AskForPlan();
    return;
  }
  Await(kProbeSeconds, absl::StrFormat("probe of the link %s -> %s", probes_left_.back().first, probes_left_.back().second));
  Do(AskProbe{.src = probes_left_.back().first, .dst = probes_left_.back().second});
}

void RunState::Handle(const LinkProbed& event) {
  if (phase_ != Phase::kProbing || probes_left_.empty()) return;
  const auto& [src, dst] = probes_left_.back();
  if (event.link.src != src || event.link.dst != dst) return;
  if (!event.status.ok()) {
    Fail(absl::UnavailableError(absl::StrFormat("%s cannot reach %s: %s", src, dst, std::string(event.status.message()))));
    return;
  }
  links_.push_back(event.link);
  probes_left_.pop_back();
  ProbeNext();
}

void RunState::AskForPlan() {
  phase_ = Phase::kPlanning;
  AskPlan ask{.again = epoch_ > 0};
  for (const auto& [name, member] : members_) {
    if (!member.spare || plan_is_stale_) ask.devices.push_back(name);
  }
  Await(kPlanSeconds, "the scheduler");
  Do(std::move(ask));
}

void RunState::Handle(const Planned& event) {
  if (phase_ != Phase::kPlanning) return;
  const bool again = epoch_ > 0 && !plan_.devices.empty();
  plan_ = event.plan;
  plan_is_stale_ = false;
  for (const std::string& device : plan_.devices) {
    if (!Present(device)) {  // lost while the scheduler was thinking
      CalibrateNext();
      return;
    }
  }
  if (again)
    Do(Announce{.reason = "Replanned",
                .step = last_step_,
                .message = absl::StrFormat("%d stages on %s", plan_.devices.size(), absl::StrJoin(plan_.devices, ", "))});
  Load();
}

void RunState::Handle(const PlanRefused& event) {
  if (phase_ == Phase::kPlanning) Fail(absl::ResourceExhaustedError(event.message), event.reason);
}

// ---- A plan epoch -----------------------------------------------------------------------------------------------------------------------

void RunState::Load() {
  const bool first = epoch_ == options_.last_epoch;
  ++epoch_;
  phase_ = Phase::kLoading;
  last_step_ = checkpoint_step_;
  shards_.clear();
  ended_at_.clear();
  Do(PublishPlan{});
  if (first) {
    for (const auto& [name, member] : members_) {
      const int stage = StageOf(name);
      Announce joined{.reason = "ExecutorJoined", .step = last_step_, .device = name, .pid = member.pid};
      joined.message = stage < 0 ? absl::StrCat(name, " joined the backup pool") : absl::StrCat(name, " joined and runs stage ", stage);
      if (stage >= 0) joined.stage = stage;
      Do(std::move(joined));
    }
  }
  if (!checkpoint_path_.empty()) {
    Do(Announce{.reason = "Restored",
                .step = checkpoint_step_,
                .message = absl::StrCat("restoring step ", checkpoint_step_, " from ", checkpoint_path_)});
  } else if (!first) {
    Do(Announce{.reason = "Restored", .step = 0, .message = "no checkpoint yet: starting again from the initial parameters"});
  }
  waiting_ = {plan_.devices.begin(), plan_.devices.end()};
  Await(kLoadSeconds, "stages to load");
  for (size_t stage = 0; stage < plan_.devices.size(); ++stage) {
    Do(SendAssign{.name = plan_.devices[stage],
                  .epoch = epoch_,
                  .stage = static_cast<int>(stage),
                  .restore_from = checkpoint_path_,
                  .first_step = checkpoint_step_ + 1});
  }
}

void RunState::Handle(const Ready& event) {
  if (phase_ != Phase::kLoading || event.epoch != epoch_) return;
  if (!event.status.ok()) {
    if (IsTransient(event.status)) {
      Drain(std::string(event.status.message()));
    } else {
      Fail(absl::Status(event.status.code(),
                        absl::StrFormat("stage %d on %s: %s", StageOf(event.name), event.name, std::string(event.status.message()))));
    }
    return;
  }
  waiting_.erase(event.name);
  if (waiting_.empty()) StartAll();
}

void RunState::StartAll() {
  phase_ = Phase::kRunning;
  Await(kFirstStepSeconds, "the first step");
  for (const std::string& device : plan_.devices) Do(SendStart{.name = device, .epoch = epoch_});
  if (stop_asked_) Do(SendStop{plan_.devices[0]});
}

void RunState::Handle(const StepDone& event) {
  if (event.epoch != epoch_ || event.record.step <= last_step_) return;
  // Executors that come back to a restarted broker repeat what it has not acknowledged, perhaps before the others are there.
  if (phase_ != Phase::kRunning && phase_ != Phase::kFinishing && !adopted_) return;
  last_step_ = event.record.step;
  Do(PublishStep{.epoch = epoch_, .record = event.record});
  if (phase_ == Phase::kRunning) Await(std::max(kStepSecondsMin, kStepPatience * event.record.step_seconds), "the next step");
}

void RunState::Handle(const Ended& event) {
  if (event.epoch != epoch_) return;
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
    TakeUpAdopted(/*time_is_up=*/false);
    return;
  }
  if (phase_ != Phase::kRunning && phase_ != Phase::kLoading) return;
  if (!event.status.ok()) {
    if (!event.lost_peer.empty() || IsTransient(event.status)) {
      Drain(absl::StrCat(event.name, ": ", std::string(event.status.message())));
      DrainedOne(event.name);
    } else {
      Fail(absl::Status(event.status.code(),
                        absl::StrFormat("stage %d on %s: %s", StageOf(event.name), event.name, std::string(event.status.message()))));
    }
    return;
  }
  ended_at_[event.name] = event.last_step;
  FinishWhenAllEnded();
}

void RunState::FinishWhenAllEnded() {
  if (ended_at_.size() < plan_.devices.size()) return;
  phase_ = Phase::kFinishing;
  Await(kFinishSeconds, "the last checkpoint");
  MaybeFinish();
}

// ---- Checkpoints ------------------------------------------------------------------------------------------------------------------------

void RunState::Handle(const ShardWritten& event) {
  if (event.epoch != epoch_) return;
  // Repeated to a restarted broker whose checkpoint is whole already.
  if (committing_.contains(event.step) || (!checkpoint_path_.empty() && event.step <= checkpoint_step_)) return;
  auto& shards = shards_[event.step];
  const bool first_failure =
      !event.status.ok() && std::all_of(shards.begin(), shards.end(), [](const auto& shard) { return shard.second.status.ok(); });
  shards[event.stage] = event;
  if (first_failure) {
    Handle(CheckpointCommitted{.step = event.step, .status = event.status});
    if (phase_ == Phase::kFailed) return;
  }
  CommitIfComplete(event.step);
}

void RunState::CommitIfComplete(int64_t step) {
  const std::map<int, ShardWritten>& shards = shards_[step];
  if (shards.size() < plan_.devices.size()) return;
  CommitCheckpoint commit{.step = step};
  bool whole = true;
  for (const auto& [stage, shard] : shards) {
    whole = whole && shard.status.ok();
    commit.files.insert(commit.files.end(), shard.files.begin(), shard.files.end());
    commit.samples_consumed = std::max(commit.samples_consumed, shard.samples_consumed);
  }
  shards_.erase(step);
  if (whole) {
    committing_.insert(step);
    Do(std::move(commit));
  } else {
    Do(AbandonCheckpoint{.step = step});  // nobody writes there any more, and the room may be needed
    MaybeFinish();
  }
}

void RunState::Handle(const CheckpointCommitted& event) {
  committing_.erase(event.step);
  if (!event.status.ok()) {
    const std::string message = absl::StrFormat("checkpoint of step %d was not saved: %s", event.step, std::string(event.status.message()));
    // In the middle of a run training goes on, the earlier checkpoints are whole; at the end there is nothing left to try.
    if (phase_ == Phase::kFinishing || event.step >= options_.total_steps || stop_asked_) {
      Fail(absl::Status(event.status.code(), message));
    } else {
      Do(Announce{.reason = "CheckpointFailed", .step = event.step, .message = message});
    }
    return;
  }
  if (event.step >= checkpoint_step_) {
    checkpoint_step_ = event.step;
    checkpoint_path_ = event.path;
  }
  Do(Announce{.reason = "CheckpointSaved", .step = event.step, .message = event.path});
  MaybeFinish();
}

void RunState::MaybeFinish() {
  if (phase_ != Phase::kFinishing || !shards_.empty() || !committing_.empty()) return;
  phase_ = Phase::kDone;
  Do(Finish{.status = absl::OkStatus(), .interrupted = stop_asked_ && last_step_ < options_.total_steps});
}

// ---- Trouble ----------------------------------------------------------------------------------------------------------------------------

void RunState::Drain(const std::string& why) {
  phase_ = Phase::kDraining;
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
  if (phase_ == Phase::kDraining && waiting_.empty()) Recover();
}

std::string RunState::IdleSpareFor(int stage) const {
  if (stage == 0 && !options_.data_device.empty()) return "";
  // Declared spares first, then whoever else has no stage; by name, so that the choice is reproducible.
  for (const bool spare : {true, false}) {
    for (const auto& [name, member] : members_) {
      if (member.spare == spare && StageOf(name) < 0 && member.memory_bytes >= plan_.memory_bytes[stage]) return name;
    }
  }
  return "";
}

void RunState::Recover() {
  if (stop_asked_) {
    phase_ = Phase::kDone;
    Do(Finish{.status = absl::OkStatus(), .interrupted = true});
    return;
  }
  if (++recoveries_ > options_.max_recoveries) {
    Fail(absl::UnavailableError(absl::StrFormat("gave up after %d recoveries", options_.max_recoveries)));
    return;
  }
  for (size_t stage = 0; stage < plan_.devices.size(); ++stage) {
    if (Present(plan_.devices[stage])) continue;
    const std::string spare = IdleSpareFor(static_cast<int>(stage));
    if (spare.empty()) {
      plan_is_stale_ = true;
      CalibrateNext();
      return;
    }
    Do(Announce{.reason = "SpareActivated",
                .step = drained_at_step_,
                .message = absl::StrFormat("%s takes stage %d from %s", spare, stage, plan_.devices[stage]),
                .device = spare,
                .pid = members_.at(spare).pid,
                .stage = static_cast<int>(stage)});
    plan_.devices[stage] = spare;
  }
  Load();
}

void RunState::Handle(const StopAsked& event) {
  stop_asked_ = true;
  if (phase_ == Phase::kRunning) {
    Do(SendStop{plan_.devices[0]});
  } else if (adopted_) {
    return;  // the stages are making steps: told to stop as soon as they are back
  } else if (phase_ == Phase::kGathering || phase_ == Phase::kCalibrating || phase_ == Phase::kProbing || phase_ == Phase::kPlanning) {
    phase_ = Phase::kDone;
    Do(Finish{.status = absl::OkStatus(), .interrupted = true});
  }
}

void RunState::Handle(const Overdue& event) {
  if (event.id != expect_id_) return;
  switch (phase_) {
    case Phase::kGathering: {
      if (adopted_) {
        TakeUpAdopted(/*time_is_up=*/true);
        break;
      }
      std::vector<std::string> missing;
      for (const std::string& name : options_.expected) {
        if (!Present(name)) missing.push_back(name);
      }
      Fail(absl::DeadlineExceededError(absl::StrCat("executors did not join: ", absl::StrJoin(missing, ", "))));
      break;
    }
    case Phase::kCalibrating:
    case Phase::kProbing:
    case Phase::kPlanning:
    case Phase::kFinishing:
      Fail(absl::DeadlineExceededError(absl::StrFormat("no answer while %s", Name(phase_))));
      break;
    case Phase::kLoading:
    case Phase::kRunning:
      Drain(absl::StrFormat("no progress while %s after step %d", Name(phase_), last_step_));
      break;
    case Phase::kDraining:
      // Whoever does not even stop is as good as lost.
      for (const std::string& name : std::set<std::string>(waiting_)) {
        const auto member = members_.find(name);
        if (member != members_.end())
          Handle(Left{.name = name, .incarnation = member->second.incarnation, .why = "did not stop when told to"});
      }
      break;
    case Phase::kDone:
    case Phase::kFailed:
      break;
  }
}

}  // namespace fusionllm::broker
