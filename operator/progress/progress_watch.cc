#include "operator/progress/progress_watch.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fusionllm::op {

ProgressWatch::ProgressWatch(kube::Clock& clock, Fetch fetch, Changed changed, Told told, Happened happened)
    : clock_(clock),
      fetch_(std::move(fetch)),
      changed_(std::move(changed)),
      told_(std::move(told)),
      happened_(std::move(happened)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

ProgressWatch::~ProgressWatch() = default;

std::optional<Progress> ProgressWatch::Follow(const kube::WorkKey& job, const std::string& uid, const std::string& address) {
  const std::lock_guard lock(mutex_);
  Followed& followed = followed_[uid];
  if (followed.address != address) followed = {.job = job, .address = address};
  return followed.newest;
}

void ProgressWatch::Forget(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  followed_.erase(uid);
}

void ProgressWatch::Run(const std::stop_token& stop) {
  while (clock_.WaitFor(kEvery, stop)) {
    std::vector<std::string> uids;
    {
      const std::lock_guard lock(mutex_);
      const absl::Time now = clock_.Now();
      for (const auto& [uid, followed] : followed_) {
        if (followed.not_before <= now) uids.push_back(uid);
      }
    }
    for (const std::string& uid : uids) {
      if (stop.stop_requested()) return;
      Ask(uid);
    }
  }
}

void ProgressWatch::Ask(const std::string& uid) {
  std::string address;
  int64_t told_event = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto at = followed_.find(uid);
    if (at == followed_.end()) return;
    address = at->second.address;
    told_event = at->second.told_event;
  }
  const absl::Time asked = clock_.Now();
  const absl::StatusOr<std::string> page = fetch_(address);
  if (const absl::Time now = clock_.Now(); page.ok() || now - asked >= kSlow) {
    const std::lock_guard lock(mutex_);
    const auto at = followed_.find(uid);
    if (at == followed_.end() || at->second.address != address) return;
    at->second.pause = page.ok() ? absl::ZeroDuration() : std::clamp(2 * at->second.pause, kEvery, kLongestPause);
    at->second.not_before = now + at->second.pause;
  }
  if (!page.ok()) return;  // starting, or ending: its pod tells
  const absl::StatusOr<ProgressPage> read = ParseProgressPage(*page, told_event, clock_.Now());
  if (!read.ok()) return;
  kube::WorkKey job;
  bool moved = false;
  {
    const std::lock_guard lock(mutex_);
    const auto at = followed_.find(uid);
    if (at == followed_.end() || at->second.address != address) return;
    moved = at->second.newest != read->progress;
    at->second.newest = read->progress;
    at->second.told_event = told_event;
    job = at->second.job;
  }
  for (const RunEvent& event : read->events) {
    if (happened_) happened_(job, uid, event);
  }
  if (!moved) return;
  if (told_) told_(job, *page);  // what it says of links is news only where it says more, too
  changed_(job);
}

}  // namespace fusionllm::op
