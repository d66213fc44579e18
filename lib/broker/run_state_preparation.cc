// RunState: what happens before the first step of a plan: calibration, probes, the plan itself.
#include "lib/broker/run_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/broker/patience.h"

namespace fusionllm::broker {

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

}  // namespace fusionllm::broker
