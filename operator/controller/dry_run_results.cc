#include "operator/controller/dry_run_results.h"

#include <algorithm>
#include <utility>

namespace fusionllm::op::controller {

const DryRunResults::Entry* DryRunResults::Find(const Key& key) const {
  const auto job = entries_.find(key.job_uid);
  if (job == entries_.end()) return nullptr;
  const auto at = std::find_if(job->second.begin(), job->second.end(), [&](const Entry& entry) { return *entry.cluster == key.cluster; });
  return at == job->second.end() ? nullptr : &*at;
}

DryRunResults::Entry& DryRunResults::EntryOf(const Key& key) {
  if (entries_.size() >= kMaxJobs && !entries_.contains(key.job_uid)) Erase(entries_.begin());
  std::vector<Entry>& job = entries_[key.job_uid];
  const auto at = std::find_if(job.begin(), job.end(), [&](const Entry& entry) { return *entry.cluster == key.cluster; });
  if (at == job.end()) {
    job.reserve(job.size() + 1);  // no room for as many again
    Entry& made = job.emplace_back();
    const auto named = clusters_.try_emplace(key.cluster, 0).first;
    ++named->second;
    made.cluster = &named->first;
    made.generation = key.generation;
    made.attempt = key.attempt;
    return made;
  }
  Entry& entry = *at;
  if (entry.generation != key.generation) entry.refusing.reset();
  if (entry.generation != key.generation || entry.attempt != key.attempt) {
    entry.accepted = false;
    entry.awaited = absl::InfiniteFuture();
  }
  entry.generation = key.generation;
  entry.attempt = key.attempt;
  return entry;
}

void DryRunResults::Erase(std::map<std::string, std::vector<Entry>>::iterator job) {
  for (const Entry& entry : job->second) {
    const auto named = clusters_.find(*entry.cluster);
    if (--named->second == 0) clusters_.erase(named);
  }
  entries_.erase(job);
}

DryRunResults::Result DryRunResults::Of(const Key& key) const {
  const base::MutexLock lock(mutex_);
  const Entry* const entry = Find(key);
  if (entry == nullptr || entry->generation != key.generation) return {};
  Result result;
  if (entry->refusing != nullptr) {
    result.refusal = entry->refusing->refusal;
    result.retry_at = entry->refusing->retry_at;
  }
  if (entry->attempt != key.attempt) return result;
  result.accepted = entry->accepted;
  result.awaited = entry->awaited;
  return result;
}

absl::Time DryRunResults::Await(const Key& key, absl::Time now) {
  const base::MutexLock lock(mutex_);
  absl::Time& awaited = EntryOf(key).awaited;
  awaited = std::min(awaited, now);
  return awaited;
}

bool DryRunResults::Accept(const Key& key) {
  const base::MutexLock lock(mutex_);
  return !std::exchange(EntryOf(key).accepted, true);
}

bool DryRunResults::Refuse(const Key& key, const Refused& refused, absl::Time now) {
  const base::MutexLock lock(mutex_);
  Entry& entry = EntryOf(key);
  const bool changed = entry.refusing == nullptr || entry.refusing->refusal != refused.refusal;
  entry.accepted = false;
  entry.refusing = std::make_unique<const Refusing>(Refusing{refused.refusal, now + refused.retry_after});
  return changed;
}

bool DryRunResults::Succeed(const Key& key) {
  const base::MutexLock lock(mutex_);
  if (Find(key) == nullptr) return false;
  return std::exchange(EntryOf(key).refusing, nullptr) != nullptr;
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
