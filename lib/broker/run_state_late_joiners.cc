// RunState: devices that come while the plan in force does with fewer than the run wants, because some were lost that no spare stood in
// for. The planner is asked about them as about a drift: beside the running steps, and to move only where that pays.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/run_state.h"

namespace fusionllm::broker {

bool RunState::MayTrain(const Member& member) const {
  return !options_.excluded.contains(member.name) && member.memory_bytes >= options_.min_executor_memory_bytes;
}

int RunState::Trainers() const {
  return static_cast<int>(
      std::count_if(members_.begin(), members_.end(), [this](const auto& entry) { return !entry.second.spare && MayTrain(entry.second); }));
}

// Of an expected executor that has never joined it is not known that it is a spare.
int RunState::Wanted() const {
  const auto by_name = std::count_if(options_.expected.begin(), options_.expected.end(), [this](const std::string& name) {
    return !options_.excluded.contains(name) && !no_trainers_.contains(name);
  });
  return std::max({static_cast<int>(by_name), options_.min_executors, most_trainers_});
}

bool RunState::IsBelowWantedExecutors() const { return plan_.executors > 0 && plan_.executors < std::min(plan_.wanted, Wanted()); }

bool RunState::SparesAreNeeded() const { return IsBelowWantedExecutors() && Trainers() < Wanted(); }

std::vector<std::string> RunState::LateJoiners() const {
  std::vector<std::string> names;
  if (!IsBelowWantedExecutors()) return names;
  const bool spares = SparesAreNeeded();
  for (const auto& [name, member] : members_) {
    if (StageOf(name) < 0 && MayTrain(member) && (spares || !member.spare) && !considered_.contains(name)) names.push_back(name);
  }
  return names;
}

std::string RunState::OutlookOf(const Member& member) const {
  if ((phase_ != Phase::kRunning && phase_ != Phase::kLoading) || !IsBelowWantedExecutors() || StageOf(member.name) >= 0 ||
      !MayTrain(member))
    return "";
  if (!options_.checkpoints) return "; the job keeps no checkpoints, so that a plan with it would cost every step made: the plan stays";
  return absl::StrFormat("; the plan was made over %d of %d executors: whether one with it pays is asked", plan_.executors, plan_.wanted);
}

// A stage answers probes while it runs and sends none.
bool RunState::LateJoinersAreMeasured() {
  const std::vector<std::string> late_joiners = LateJoiners();
  if (late_joiners.empty() || !calibrating_.empty() || probing_.has_value()) return false;
  for (const std::string& name : late_joiners) {
    if (profiles_.contains(name)) continue;
    calibrating_ = name;
    Do(StartCalibration{name});
    return false;
  }
  const std::set<Wire> measured = MeasuredWires();
  std::vector<std::pair<std::string, std::string>> from_stages;
  for (const auto& [src, sender] : members_) {
    for (const auto& [dst, receiver] : members_) {
      const bool concerned =
          std::count(late_joiners.begin(), late_joiners.end(), src) + std::count(late_joiners.begin(), late_joiners.end(), dst) > 0;
      if (src == dst || !concerned || measured.contains(WireOf(src, dst))) continue;
      if (StageOf(src) >= 0) {
        from_stages.emplace_back(src, dst);
        continue;
      }
      probing_.emplace(src, dst);
      Do(StartLinkProbe{.src = src, .dst = dst});
      return false;
    }
  }
  for (const auto& [src, dst] : from_stages) {
    const Link* const back = LinkBetween(dst, src);
    if (back == nullptr) continue;
    links_.push_back({.src = src, .dst = dst, .rtt_s = back->rtt_s, .bytes_per_s = back->bytes_per_s});
    assumed_links_.emplace(src, dst);
  }
  return true;
}

// A way that fails now is no reason to end the run, nor to send anybody away: it is tried again when the next plan is made.
void RunState::HandleProbeDuringRun(const LinkProbed& event) {
  if (event.status.ok()) {
    links_.push_back(event.link);
  } else {
    for (const std::string& name : {event.link.src, event.link.dst}) {
      if (StageOf(name) >= 0 || considered_.contains(name)) continue;
      DeclineLateJoiners({name}, absl::StrFormat("probe %s -> %s: %s", event.link.src, event.link.dst, event.status.message()));
      break;
    }
  }
  ConsiderPlanSwitch();
}

}  // namespace fusionllm::broker
