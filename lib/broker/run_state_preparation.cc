// RunState: what happens before the first step of a plan: calibration, probes, the plan itself.
#include "lib/broker/run_state.h"

#include <set>
#include <tuple>
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
  // The first pair of devices speaks for all that the same wire joins.
  std::set<Wire> measured;
  for (const Link& link : links_) {
    if (Present(link.src) && Present(link.dst)) measured.insert(WireOf(link.src, link.dst));
  }
  probes_left_.clear();
  for (const auto& [src, sender] : members_) {
    for (const auto& [dst, receiver] : members_) {
      if (src != dst && measured.insert(WireOf(src, dst)).second) probes_left_.emplace_back(src, dst);
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
  Await(kPlanSeconds, "the scheduler");
  Do(PlanQuestion(/*with_spares=*/plan_is_stale_));
}

void RunState::Handle(const Planned& event) {
  if (phase_ != Phase::kPlanning) return;
  const bool again = epoch_ > 0 && !plan_.devices.empty();
  plan_ = event.plan;
  plan_is_stale_ = codecs_are_stale_ = false;
  slowness_ = slowness_asked_;
  for (const std::string& device : plan_.devices) {
    if (!Present(device)) {  // lost while the scheduler was thinking
      CalibrateNext();
      return;
    }
  }
  if (again)
    Do(Announce{.reason = "Replanned",
                .step = last_step_,
                .message = absl::StrFormat("%d stages on %s%s%s", plan_.devices.size(), absl::StrJoin(plan_.devices, ", "),
                                           renewal_why_.empty() ? "" : ": ", renewal_why_)});
  renewal_why_.clear();
  Load();
}

void RunState::Handle(const PlanRefused& event) {
  if (phase_ == Phase::kPlanning) Fail(absl::ResourceExhaustedError(event.message), event.reason);
}

}  // namespace fusionllm::broker
