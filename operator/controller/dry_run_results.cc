#include "operator/controller/dry_run_results.h"

#include <algorithm>
#include <utility>

namespace fusionllm::op::controller {

const DryRunResults::Entry* DryRunResults::Find(const About& about) const {
  const auto job = entries_.find(about.job_uid);
  if (job == entries_.end()) return nullptr;
  const auto at = std::find_if(job->second.begin(), job->second.end(), [&](const Entry& entry) { return *entry.cluster == about.cluster; });
  return at == job->second.end() ? nullptr : &*at;
}

DryRunResults::Entry& DryRunResults::EntryOf(const About& about) {
  if (entries_.size() >= kMaxJobs && !entries_.contains(about.job_uid)) Erase(entries_.begin());
  std::vector<Entry>& job = entries_[about.job_uid];
  const auto at = std::find_if(job.begin(), job.end(), [&](const Entry& entry) { return *entry.cluster == about.cluster; });
  if (at == job.end()) {
    job.reserve(job.size() + 1);  // no room for as many again
    Entry& made = job.emplace_back();
    const auto named = clusters_.try_emplace(about.cluster, 0).first;
    ++named->second;
    made.cluster = &named->first;
    made.generation = about.generation;
    made.attempt = about.attempt;
    return made;
  }
  Entry& entry = *at;
  if (entry.generation != about.generation) entry.refusing.reset();
  if (entry.generation != about.generation || entry.attempt != about.attempt) {
    entry.accepted = false;
    entry.awaited = absl::InfiniteFuture();
  }
  entry.generation = about.generation;
  entry.attempt = about.attempt;
  return entry;
}

void DryRunResults::Erase(std::map<std::string, std::vector<Entry>>::iterator job) {
  for (const Entry& entry : job->second) {
    const auto named = clusters_.find(*entry.cluster);
    if (--named->second == 0) clusters_.erase(named);
  }
  entries_.erase(job);
}

DryRunResults::Standing DryRunResults::Of(const About& about) const {
  const base::MutexLock lock(mutex_);
  const Entry* const entry = Find(about);
  if (entry == nullptr || entry->generation != about.generation) return {};
  Standing standing;
  if (entry->refusing != nullptr) {
    standing.refusal = entry->refusing->refusal;
    standing.again = entry->refusing->again;
  }
  if (entry->attempt != about.attempt) return standing;
  standing.accepted = entry->accepted;
  standing.awaited = entry->awaited;
  return standing;
}

absl::Time DryRunResults::Await(const About& about, absl::Time now) {
  const base::MutexLock lock(mutex_);
  absl::Time& awaited = EntryOf(about).awaited;
  awaited = std::min(awaited, now);
  return awaited;
}

bool DryRunResults::Accept(const About& about) {
  const base::MutexLock lock(mutex_);
  return !std::exchange(EntryOf(about).accepted, true);
}

bool DryRunResults::Refuse(const About& about, const Refused& refused, absl::Time now) {
  const base::MutexLock lock(mutex_);
  Entry& entry = EntryOf(about);
  const bool news = entry.refusing == nullptr || entry.refusing->refusal != refused.refusal;
  entry.accepted = false;
  entry.refusing = std::make_unique<const Refusing>(Refusing{refused.refusal, now + refused.again});
  return news;
}

bool DryRunResults::Succeed(const About& about) {
  const base::MutexLock lock(mutex_);
  if (Find(about) == nullptr) return false;
  return std::exchange(EntryOf(about).refusing, nullptr) != nullptr;
}

void DryRunResults::Forget(const std::string& job_uid) {
  const base::MutexLock lock(mutex_);
  if (const auto job = entries_.find(job_uid); job != entries_.end()) Erase(job);
}

size_t DryRunResults::clusters() const {
  const base::MutexLock lock(mutex_);
  return clusters_.size();
}

}  // namespace fusionllm::op::controller
