// The authorities of the jobs that were prepared last, so that each of a job's clusters need not read its Secret from the hub again.
//
// Keyed by the job's uid, whose Secret is made once. Only in memory, of few jobs, and only while their clusters are prepared one after the
// other: an authority takes kilobytes as OpenSSL keeps it. What is not here is read. Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "operator/manifests/job_credentials.h"

namespace fusionllm::op::manifests {

class AuthorityCache {
 public:
  static constexpr size_t kMaxEntries = 256;
  static constexpr absl::Duration kEntryTtl = absl::Minutes(1);  // since it was of use

  std::optional<JobCredentials> Find(const std::string& job_uid, absl::Time now) {
    const base::MutexLock lock(mutex_);
    const auto at = authorities_.find(job_uid);
    if (at == authorities_.end()) return std::nullopt;
    at->second.used_at = now;
    return at->second.authority;
  }

  // In place of one that was there. The oldest goes when there are too many.
  void Put(const std::string& job_uid, const JobCredentials& authority, absl::Time now) {
    const base::MutexLock lock(mutex_);
    if (!authorities_.insert_or_assign(job_uid, Kept{authority, now}).second) return;
    order_.push_back(job_uid);
    if (order_.size() <= kMaxEntries) return;
    authorities_.erase(order_.front());
    order_.pop_front();
  }

  // Those that have been of no use for kEntryTtl.
  void Forget(absl::Time now) {
    const base::MutexLock lock(mutex_);
    std::erase_if(authorities_, [&](const auto& entry) { return entry.second.used_at + kEntryTtl <= now; });
    std::erase_if(order_,
                  [&](const std::string& job_uid) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !authorities_.contains(job_uid); });
  }

 private:
  struct Kept {
    JobCredentials authority;
    absl::Time used_at;
  };

  base::Mutex mutex_;
  std::map<std::string, Kept> authorities_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::op::manifests
