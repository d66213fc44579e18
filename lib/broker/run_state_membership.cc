// RunState: who joins, who leaves, who comes back to a restarted broker.
#include "lib/broker/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {
namespace {

constexpr uint32_t kMaxEpochs = 1'000'000'000;  // what claims to run a later one, has made it up

}  // namespace

// All executors may have gone together with the broker before this one: no news of theirs would ever start a timer.
void RunState::Handle(const Started&) {
  if (adopted_) ResumeAdopted(/*time_is_up=*/false);
}

void RunState::Handle(const Joined& event) {
  const Member& member = event.member;
  if (const auto unfit = unfit_.find(member.name); unfit != unfit_.end()) {
    if (unfit->second == member.incarnation) return;
    unfit_.erase(unfit);
  }
  const auto previous = members_.find(member.name);
  const bool same_process = previous != members_.end() && previous->second.incarnation == member.incarnation;
  if (previous != members_.end() && !same_process) {
    // A restarted executor: its former life is over before the new one begins.
    Handle(Left{.name = member.name, .incarnation = previous->second.incarnation, .why = "restarted"});
    if (phase_ == Phase::kDone || phase_ == Phase::kFailed) return;
  }
  members_[member.name] = member;
  if (member.spare || !MayTrain(member)) {
    no_trainers_.insert(member.name);
  } else {
    no_trainers_.erase(member.name);
  }
  given_up_.erase(member.name);
  joined_since_asked_ = true;
  data_was_here_ = data_was_here_ || HasData(member.name);
  if (event.epoch > epoch_ && event.epoch < kMaxEpochs) {
    // The broker before this one began it, and left no word of it. What its stages do from here on could not be distinguished from ours.
    foreign_epoch_ = std::max(foreign_epoch_, event.epoch);
    Do(SendAbort{.name = member.name, .epoch = event.epoch, .why = "the broker that began this plan epoch is gone, and its journal, too"});
  }
  if (adopted_) {
    if (event.epoch == epoch_) {
      waiting_.erase(member.name);
    } else if (StageOf(member.name) >= 0) {
      adopted_epoch_is_over_ = true;
    }
    ResumeAdopted(/*time_is_up=*/false);
    return;
  }
  if (phase_ != Phase::kGathering || awaits_data_.has_value()) {
    if (!same_process) {
      Do(EmitEvent{.reason = "ExecutorJoined",
                   .step = last_step_,
                   .message = absl::StrCat(member.name, " joined as a spare", OutlookOf(member)),
                   .device = member.name,
                   .pid = member.pid});
    }
    if (!awaits_data_.has_value()) return;
  } else if (!same_process && options_.min_executors > 0) {  // whose names were unknown: somebody may be waiting for them to come
    Do(EmitEvent{.reason = "ExecutorConnected",
                 .step = last_step_,
                 .message = absl::StrFormat("%s is here%s; %d of %s", member.name, member.spare ? ", a spare" : "", ExecutorsHere(),
                                            base::Pluralize(options_.min_executors, "executor")),
                 .device = member.name,
                 .pid = member.pid});
  }
  BeginWhenComplete();
}

// Expected executors that may yet come.
std::vector<std::string> RunState::Missing() const {
  std::vector<std::string> missing;
  for (const std::string& name : options_.expected) {
    if (!Present(name) && !unfit_.contains(name) && !given_up_.contains(name)) missing.push_back(name);
  }
  return missing;
}

bool RunState::LacksData() const {
  return !options_.data_devices.empty() &&
         std::none_of(options_.data_devices.begin(), options_.data_devices.end(), [this](const auto& name) { return Present(name); });
}

bool RunState::OnlyDataIsMissing() const {
  if (!plan_.devices.empty() || members_.empty() || data_was_here_ || !LacksData()) return false;
  if (gathering_over_) return true;
  const std::vector<std::string> missing = Missing();
  const auto executors = std::count_if(members_.begin(), members_.end(), [](const auto& entry) { return !entry.second.spare; });
  return !missing.empty() && executors + static_cast<int64_t>(missing.size()) >= options_.min_executors &&
         std::all_of(missing.begin(), missing.end(), [this](const std::string& name) { return HasData(name); });
}

int64_t RunState::ExecutorsHere() const {
  return std::count_if(members_.begin(), members_.end(), [](const auto& entry) { return !entry.second.spare; });
}

bool RunState::IsComplete() const {
  if (gathering_over_ && plan_.devices.empty()) return !LacksData();
  const bool known = !options_.expected.empty() || options_.min_executors > 0;
  return known && ExecutorsHere() >= options_.min_executors && Missing().empty();
}

void RunState::BeginWhenComplete() {
  if (awaits_data_.has_value()) {  // the timer runs on, even if others come or go
    if (LacksData()) return;
    const Then then = *awaits_data_;
    awaits_data_.reset();
    if (then == Then::kPlan) {
      CalibrateNext();
    } else {
      retries_without_progress_ = 0;  // it has been waited for
      Recover();
    }
    return;
  }
  if (IsComplete()) {
    awaits_lost_.clear();
    CalibrateNext();
  } else {
    AwaitMembers();
  }
}

// The timeout for those who have not come, or not come back, is over.
void RunState::BeginWithoutMissing() {
  const std::vector<std::string> missing = Missing();
  if ((data_was_here_ || awaits_data_.has_value()) && FailWithoutData()) return;
  if (OnlyDataIsMissing() && options_.min_executors == 0) {
    Fail(absl::DeadlineExceededError(absl::StrCat(
        "no device that has the training data has joined: ", absl::StrJoin(options_.data_devices, " or "), " was waited for")));
    return;
  }
  if (!awaits_lost_.empty()) {
    Fail(absl::UnavailableError(
        absl::StrFormat("%s lost, and not back in %g s: %s", absl::StrJoin(missing, ", "), options_.executor_timeout_s, awaits_lost_)));
    return;
  }
  if (members_.empty() && options_.waits_for_executors) {
    AwaitLost("all executors are gone");
    return;
  }
  if (!begun_ || !plan_.devices.empty() || members_.empty()) {
    Fail(absl::DeadlineExceededError(absl::StrCat("executors did not join: ", absl::StrJoin(missing, ", "))));
    return;
  }
  given_up_.insert(missing.begin(), missing.end());
  BeginWhenComplete();
}

// Without the executors that were lost there is no plan, and somebody starts them again. False: none is lost, or no one does.
bool RunState::AwaitLost(const std::string& why) {
  given_up_.clear();
  const std::vector<std::string> missing = Missing();
  if (!options_.waits_for_executors || missing.empty()) return false;
  phase_ = Phase::kGathering;
  awaits_lost_ = why;
  Do(EmitEvent{.reason = "WaitingForExecutors",
               .step = last_step_,
               .message = absl::StrFormat("%s: the run waits for %s to come back, %g s without news at most", why,
                                          absl::StrJoin(missing, ", "), options_.executor_timeout_s)});
  AwaitMembers();
  return true;
}

bool RunState::FailWithoutData() {
  if (!LacksData()) return false;
  const std::string when = plan_.devices.empty() ? "before the first plan" : absl::StrFormat("after step %d", last_step_);
  const bool one = options_.data_devices.size() == 1;
  const std::string waited = awaits_data_.has_value() ? absl::StrFormat(", and did not come back in %g s", options_.data_timeout_s) : "";
  const std::string message =
      absl::StrFormat("%s, which alone ha%s the training data, w%s lost %s%s", absl::StrJoin(options_.data_devices, ", "), one ? "s" : "ve",
                      one ? "as" : "ere", when, waited);
  Fail(absl::UnavailableError(checkpoint_path_.empty() ? message
                                                       : absl::StrFormat("%s; started again, the run goes on after step %d, from %s",
                                                                         message, checkpoint_step_, checkpoint_path_)));
  return true;
}

void RunState::EmitWaitingForData(const std::string& how_long) {
  Do(EmitEvent{.reason = "WaitingForData",
               .step = last_step_,
               .message = absl::StrFormat("no device that has the training data is here: %s is waited for, %s",
                                          absl::StrJoin(options_.data_devices, " or "), how_long)});
}

// Who is lost under a plan is started again by what watches it, if anybody does; the others have nothing to do meanwhile.
bool RunState::AwaitOrFailWithoutData(Then then) {
  if (!LacksData()) return false;
  if (options_.data_timeout_s <= 0) return FailWithoutData();
  phase_ = Phase::kGathering;
  awaits_data_ = then;
  EmitWaitingForData(absl::StrFormat("%g s at most", options_.data_timeout_s));
  Await(options_.data_timeout_s, "an executor with the training data to come back");
  return true;
}

// That of the first stage as it is, unless it has become slow, else rather one that is no spare; last of all spares that the question
// leaves out. Of a device that joined meanwhile, and was not measured, the planner knows nothing.
std::vector<DataStageSelector::Reader> RunState::ReadersFor(const RequestPlan& question) const {
  std::vector<DataStageSelector::Reader> readers;
  const std::map<std::string, double> slow = plan_monitor_.Slowness();
  for (const auto& [name, member] : members_) {
    if (!HasData(name) || !MayTrain(member) || !profiles_.contains(name)) continue;
    DataStageSelector::Reader reader{.name = name, .site = member.site};
    if (std::find(question.devices.begin(), question.devices.end(), name) == question.devices.end()) {
      reader.is_extra = true;
    } else if (slow.contains(name)) {
      reader.priority = 1;
    } else {
      reader.priority = StageOf(name) == 0 ? 4 : member.spare ? 2 : 3;
    }
    readers.push_back(std::move(reader));
  }
  return readers;
}

// After a restart of the broker: go on with the epoch when all its stages have come back. When one cannot, drain; but not before everybody
// had the time to come back, or a device that is still dialling would be taken for lost.
void RunState::ResumeAdopted(bool time_is_up) {
  for (const auto& [step, shards] : std::map<int64_t, std::map<int, ShardWritten>>(shards_)) CommitIfComplete(step);
  if (waiting_.empty() && !adopted_epoch_is_over_) {
    adopted_ = false;
    phase_ = Phase::kRunning;
    StartPlanMonitor();
    Await(kFirstStepSeconds, "a step after the broker came back");
    if (stop_asked_) Do(SendStop{.name = plan_.devices[0], .epoch = epoch_});
    FinishWhenAllEnded();
    return;
  }
  const auto all_here = [this](const auto& names) {
    return std::all_of(names.begin(), names.end(),
                       [this](const std::string& name) { return Present(name) || options_.gone.contains(name) || unfit_.contains(name); });
  };
  if (!time_is_up && !(adopted_epoch_is_over_ && all_here(plan_.devices) && all_here(options_.expected))) {
    if (members_.size() <= 1) Await(kRejoinSeconds, "executors to come back");
    return;
  }
  adopted_ = false;
  for (int rank = 0; rank < static_cast<int>(plan_.devices.size()); ++rank) {
    const std::string& name = plan_.devices[static_cast<size_t>(rank)];
    if (Present(name)) continue;
    EmitEvent lost{
        .reason = "ExecutorLost",
        .step = last_step_,
        .message = absl::StrFormat("%s (%s) was lost while the broker was away, after step %d", name, plan_.Describe(rank), last_step_),
        .device = name};
    SetStageAndReplica(rank, lost);
    Do(std::move(lost));
  }
  Drain("the plan epoch did not outlive the broker");
}

void RunState::Handle(const JoinTimeout& event) {
  if (adopted_ || awaits_data_.has_value()) return;
  gathering_over_ = true;  // also where none has come yet: then the first one need not wait for others
  if (phase_ == Phase::kGathering && !members_.empty()) CalibrateNext();
}

void RunState::Handle(const Left& event) {
  const auto found = members_.find(event.name);
  if (found == members_.end() || found->second.incarnation != event.incarnation) return;
  members_.erase(found);
  considered_.erase(event.name);
  data_stage_selector_.Lost(event.name);
  if (calibrating_ == event.name) calibrating_.clear();
  if (probing_.has_value() && (probing_->first == event.name || probing_->second == event.name)) probing_.reset();
  std::erase_if(probes_failed_, [&](const auto& probe) { return probe.first.first == event.name || probe.first.second == event.name; });
  const int rank = RankOf(event.name);
  if (adopted_) {  // it may come back yet
    if (rank >= 0) waiting_.insert(event.name);
    return;
  }
  if (phase_ == Phase::kFinishing && shards_.empty() && committing_.empty()) return;
  const std::string role = rank < 0 ? "no stage" : plan_.Describe(rank);
  EmitEvent lost{.reason = "ExecutorLost",
                 .step = last_step_,
                 .message = absl::StrFormat("%s (%s) was lost after step %d: %s%s", event.name, role, last_step_, event.why,
                                            IsNoLongerRequired(rank) ? kNoLongerRequired : ""),
                 .device = event.name};
  SetStageAndReplica(rank, lost);
  Do(std::move(lost));
  switch (phase_) {
    case Phase::kGathering:
      if (HasData(event.name) && LacksData() && !awaits_data_.has_value()) AwaitMembers();
      break;
    case Phase::kCalibrating:
    case Phase::kProbing:
      CalibrateNext();
      break;
    case Phase::kPlanning:
      if (!asks_for_figures_) {
        CalibrateNext();
      } else if (rank >= 0) {
        Recover();
      }
      break;
    case Phase::kLoading:
    case Phase::kRunning:
    case Phase::kFinishing:
      if (IsNoLongerRequired(rank)) {
        EndOtherReplicas(absl::StrCat(event.name, " was lost"));
      } else if (rank >= 0) {
        Drain(absl::StrFormat("%s (%s) was lost: %s", event.name, role, event.why));
      }
      break;
    case Phase::kDraining:
      DrainedOne(event.name);
      break;
    case Phase::kDone:
    case Phase::kFailed:
      break;
  }
}

}  // namespace fusionllm::broker
