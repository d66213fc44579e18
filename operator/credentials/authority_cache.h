// The authorities of the jobs that were prepared last, so that each of a job's clusters need not read its Secret from the hub again.
//
// Keyed by the job's uid, whose Secret is made once. Only in memory, and of few jobs: what is not here is read. Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "operator/credentials/job_credentials.h"

namespace fusionllm::op {

class AuthorityCache {
 public:
  static constexpr size_t kMost = 256;

  std::optional<JobCredentials> Find(const std::string& job_uid) const {
    const std::lock_guard lock(mutex_);
    const auto at = authorities_.find(job_uid);
    return at == authorities_.end() ? std::nullopt : std::optional(at->second);
  }

  // In place of one that was there. The oldest goes when there are too many.
  void Put(const std::string& job_uid, const JobCredentials& authority) {
    const std::lock_guard lock(mutex_);
    if (!authorities_.insert_or_assign(job_uid, authority).second) return;
    order_.push_back(job_uid);
    if (order_.size() <= kMost) return;
    authorities_.erase(order_.front());
    order_.pop_front();
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, JobCredentials> authorities_;
  std::deque<std::string> order_;
};

}  // namespace fusionllm::op
