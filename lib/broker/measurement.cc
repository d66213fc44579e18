#include "lib/broker/measurement.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {
namespace {

// Both have reached the broker, whatever lies between their sites. Of two that meet there already that is no news.
std::string WayOut(const Executor& a, const Executor& b) {
  if (a.site == b.site || (a.at_relay && b.at_relay)) return "";
  return absl::StrFormat(
      "; %s and %s are two sites: where one cannot dial into the other, in Kubernetes spec.network.mode: Relay has executors meet at the "
      "broker",
      a.site, b.site);
}

// A probe is answered over the way back, so that either end may be at fault: not the device with the data, which is where the broker is,
// and rather one that must be dialled than one that dials out itself.
const Executor& SuspectOf(const std::string& src, const std::string& dst, const ExecutorSet& executors) {
  const Executor &sender = executors.at(src), &receiver = executors.at(dst);
  if (executors.HasData(dst)) return sender;
  if (executors.HasData(src)) return receiver;
  return receiver.at_relay && !sender.at_relay ? sender : receiver;
}

}  // namespace

Measurement::Measurement(const RunOptions& options)
    : expected_(options.expected),
      link_names_(options.link_names),
      waits_for_executors_(options.waits_for_executors),
      executor_timeout_s_(options.executor_timeout_s),
      profiles_(options.known_profiles),
      links_(options.known_links) {}

void Measurement::Adopt(std::map<std::string, std::string> profiles, std::vector<Link> links) {
  profiles_ = std::move(profiles);
  links_ = std::move(links);
}

const std::string& Measurement::calibrating() const {
  static const std::string kNone;
  return state_ == State::kCalibrating ? subject_.first : kNone;
}

bool Measurement::KnowsAll(const std::vector<std::string>& devices) const {
  return std::all_of(devices.begin(), devices.end(), [this](const std::string& device) { return Knows(device); });
}

Measurement::Next Measurement::MeasureNext(bool after_run, const ExecutorSet& executors, ActionQueue& queue) {
  if (after_run) {
    if (state_ == State::kProbing) state_ = State::kIdle;
    std::erase_if(links_, [this](const Link& link) { return assumed_links_.contains({link.src, link.dst}); });
    assumed_links_.clear();
  }
  if (state_ == State::kProbing) return Next::kWaits;
  if (state_ == State::kCalibrating) {  // its answer leads on; another executor would be measured beside it
    if (after_run) queue.ArmTimer(kCalibrateSeconds, absl::StrCat("calibration of ", calibrating()));
    return Next::kCalibrates;
  }
  for (const auto& [name, executor] : executors.present()) {
    if (Knows(name)) continue;
    queue.ArmTimer(kCalibrateSeconds, absl::StrCat("calibration of ", name));
    Calibrate(name, queue);
    return Next::kCalibrates;
  }
  // The first pair of devices speaks for all that the same shared link joins. A device with the data comes first: of machines that join it
  // is the one where the broker is, so that what cannot be reached from there is at fault.
  const std::set<SharedLink> measured = MeasuredLinks(executors);
  std::vector<std::string> names;
  for (const auto& [name, executor] : executors.present()) names.push_back(name);
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return executors.HasData(name); });
  for (const std::string& src : names) {
    for (const std::string& dst : names) {
      if (src == dst || measured.contains(SharedLinkOf(src, dst, executors))) continue;
      queue.ArmTimer(kProbeSeconds, absl::StrFormat("probe of the link %s -> %s", src, dst));
      Probe(src, dst, queue);
      return Next::kProbes;
    }
  }
  return Next::kDone;
}

void Measurement::Calibrate(const std::string& device, ActionQueue& queue) {
  state_ = State::kCalibrating;
  subject_ = {device, ""};
  queue.Push(StartCalibration{device});
}

void Measurement::Probe(const std::string& src, const std::string& dst, ActionQueue& queue) {
  state_ = State::kProbing;
  subject_ = {src, dst};
  queue.Push(StartLinkProbe{.src = src, .dst = dst});
}

bool Measurement::EndCalibration(const std::string& device, const std::string& profile) {
  if (device != calibrating()) return false;
  state_ = State::kIdle;
  profiles_[device] = profile;
  return true;
}

bool Measurement::EndProbe(const std::string& src, const std::string& dst) {
  if (state_ != State::kProbing || subject_ != std::pair(src, dst)) return false;
  state_ = State::kIdle;
  return true;
}

std::pair<std::string, std::string> Measurement::GiveUpProbe() {
  state_ = State::kIdle;
  return subject_;
}

void Measurement::Lost(const std::string& device) {
  const bool concerned = subject_.first == device || (state_ == State::kProbing && subject_.second == device);
  if (concerned) state_ = State::kIdle;
  std::erase_if(failed_probes_, [&](const auto& probe) { return probe.first.first == device || probe.first.second == device; });
}

// A machine that joined by itself is turned away: what is wrong with its address is no reason to end the run of the others. An executor
// that is awaited by name cannot be dispensed with.
Measurement::ProbeVerdict Measurement::OnProbeFailed(const std::string& src, const std::string& dst, const absl::Status& why,
                                                     const ExecutorSet& executors, int64_t last_step, ActionQueue& queue) {
  // The end of the peer makes a probe fail as well, perhaps before the broker has noticed it: it will have, when the second one fails.
  if (++failed_probes_[{src, dst}].count == 1) return {.kind = ProbeVerdict::Kind::kTryAgain};
  const Executor& suspect = SuspectOf(src, dst, executors);
  const std::string place = suspect.at_relay || suspect.data_address.empty() ? "" : absl::StrCat(" at ", suspect.data_address);
  const std::string cause = absl::StrFormat("probe %s -> %s: %s", src, dst, std::string(why.message()));
  if (executors.HasData(suspect.name) || expected_.contains(suspect.name)) {
    const Executor& other = executors.at(suspect.name == src ? dst : src);
    std::string sentence = absl::StrFormat("%s cannot reach %s%s (%s)%s", other.name, suspect.name, place, cause, WayOut(other, suspect));
    if (PauseBeforeNextProbe(src, dst, sentence, last_step, queue)) return {.kind = ProbeVerdict::Kind::kPauses};
    return {.kind = ProbeVerdict::Kind::kFails, .sentence = std::move(sentence)};
  }
  std::string sentence = absl::StrFormat("rejected: the other machines cannot reach %s%s (%s); check ", suspect.name,
                                         suspect.at_relay ? " at the broker" : place, cause);
  absl::StrAppend(&sentence, suspect.at_relay ? "its connection to the machine that started the run"
                                              : "that they can dial what it gives as --advertise, or else as --listen, and that this leads "
                                                "to its --listen; without --listen it need not be dialled");
  return {.kind = ProbeVerdict::Kind::kRejects, .device = suspect.name, .sentence = std::move(sentence)};
}

// The network between two sites may be cut for a while. False: it has been waited for long enough, or this run does not wait.
bool Measurement::PauseBeforeNextProbe(const std::string& src, const std::string& dst, const std::string& why, int64_t last_step,
                                       ActionQueue& queue) {
  FailedProbes& failed = failed_probes_.at({src, dst});
  if (!waits_for_executors_ || failed.waited_s >= executor_timeout_s_) return false;
  if (failed.waited_s == 0) {  // once for all its tries
    queue.Push(
        EmitEvent{.reason = "ProbeFailed",
                  .step = last_step,
                  .message = absl::StrFormat("%s; it is tried again, with pauses of %g s in all at most", why, executor_timeout_s_)});
  }
  const double wait_s = std::min(RetrySeconds(failed.count - 1), executor_timeout_s_ - failed.waited_s);
  failed.waited_s += wait_s;
  queue.ArmTimer(wait_s, "the next probe");
  return true;
}

// A stage answers probes while it runs and sends none.
bool Measurement::MeasureLateJoiners(const std::vector<std::string>& late_joiners, const RunPlan& plan, const ExecutorSet& executors,
                                     ActionQueue& queue) {
  if (late_joiners.empty() || state_ != State::kIdle) return false;
  for (const std::string& name : late_joiners) {
    if (Knows(name)) continue;
    Calibrate(name, queue);
    return false;
  }
  const std::set<SharedLink> measured = MeasuredLinks(executors);
  std::vector<std::pair<std::string, std::string>> from_stages;
  for (const auto& [src, sender] : executors.present()) {
    for (const auto& [dst, receiver] : executors.present()) {
      const bool concerned =
          std::count(late_joiners.begin(), late_joiners.end(), src) + std::count(late_joiners.begin(), late_joiners.end(), dst) > 0;
      if (src == dst || !concerned || measured.contains(SharedLinkOf(src, dst, executors))) continue;
      if (plan.Uses(src)) {
        from_stages.emplace_back(src, dst);
        continue;
      }
      Probe(src, dst, queue);
      return false;
    }
  }
  for (const auto& [src, dst] : from_stages) {
    const Link* const back = LinkBetween(dst, src, executors);
    if (back == nullptr) continue;
    const Link assumed{.src = src, .dst = dst, .rtt_s = back->rtt_s, .bytes_per_s = back->bytes_per_s};
    links_.push_back(assumed);
    assumed_links_.emplace(src, dst);
  }
  return true;
}

Measurement::SharedLink Measurement::SharedLinkOf(const std::string& src, const std::string& dst, const ExecutorSet& executors) const {
  const auto named = link_names_.find({src, dst});
  return named != link_names_.end() ? SharedLink("line", named->second, "")
                                    : SharedLink("sites", executors.SiteOf(src), executors.SiteOf(dst));
}

const Link* Measurement::LinkBetween(const std::string& src, const std::string& dst, const ExecutorSet& executors) const {
  const SharedLink shared_link = SharedLinkOf(src, dst, executors);
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const Link& link) { return SharedLinkOf(link.src, link.dst, executors) == shared_link; });
  return found == links_.end() ? nullptr : &*found;
}

void Measurement::SetRate(const std::string& src, const std::string& dst, double bytes_per_s, const ExecutorSet& executors) {
  const Link* const link = LinkBetween(src, dst, executors);
  if (link != nullptr) links_[static_cast<size_t>(link - links_.data())].bytes_per_s = bytes_per_s;
}

std::set<Measurement::SharedLink> Measurement::MeasuredLinks(const ExecutorSet& executors) const {
  std::set<SharedLink> measured;
  for (const Link& link : links_) {
    if (executors.IsPresent(link.src) && executors.IsPresent(link.dst)) measured.insert(SharedLinkOf(link.src, link.dst, executors));
  }
  return measured;
}

}  // namespace fusionllm::broker
