#include "operator/reconcile/trials.h"

#include <algorithm>
#include <utility>

namespace fusionllm::op {

void Trials::Renew(const About& about, Entry& entry) {
  if (entry.generation != about.generation) {
    entry.standing = {};
  } else if (entry.attempt != about.attempt) {
    entry.standing.accepted = false;
    entry.standing.awaited = absl::InfiniteFuture();
  }
  entry.generation = about.generation;
  entry.attempt = about.attempt;
}

Trials::Entry& Trials::EntryOf(const About& about) {
  if (entries_.size() >= kMostJobs && !entries_.contains(about.job_uid)) entries_.erase(entries_.begin());
  Entry& entry = entries_[about.job_uid][about.cluster];
  Renew(about, entry);
  return entry;
}

Trials::Standing Trials::Of(const About& about) const {
  const std::lock_guard lock(mutex_);
  const auto job = entries_.find(about.job_uid);
  if (job == entries_.end()) return {};
  const auto at = job->second.find(about.cluster);
  if (at == job->second.end()) return {};
  Entry entry = at->second;
  Renew(about, entry);
  return entry.standing;
}

absl::Time Trials::Await(const About& about, absl::Time now) {
  const std::lock_guard lock(mutex_);
  Standing& standing = EntryOf(about).standing;
  standing.awaited = std::min(standing.awaited, now);
  return standing.awaited;
}

bool Trials::Accept(const About& about) {
  const std::lock_guard lock(mutex_);
  return !std::exchange(EntryOf(about).standing.accepted, true);
}

bool Trials::Refuse(const About& about, const Refused& refused, absl::Time now) {
  const std::lock_guard lock(mutex_);
  Standing& standing = EntryOf(about).standing;
  const bool news = standing.refusal != refused.refusal;
  standing.accepted = false;
  standing.refusal = refused.refusal;
  standing.again = now + refused.again;
  return news;
}

bool Trials::Succeed(const About& about) {
  const std::lock_guard lock(mutex_);
  const auto job = entries_.find(about.job_uid);
  if (job == entries_.end() || !job->second.contains(about.cluster)) return false;
  return std::exchange(EntryOf(about).standing.refusal, std::nullopt).has_value();
}

void Trials::Forget(const std::string& job_uid) {
  const std::lock_guard lock(mutex_);
  entries_.erase(job_uid);
}

}  // namespace fusionllm::op
