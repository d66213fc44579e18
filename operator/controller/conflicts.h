// What has the name of an object of ours in a cluster and is not ours, so that it was left alone, as found last: for the statuses of the
// job and of the cluster, which others write than those who find it. Thread-safe.
#pragma once

#include <iterator>
#include <map>
#include <string>

#include "lib/base/mutex.h"

namespace fusionllm::op::controller {

class Conflicts {
 public:
  // Of one job's part in a cluster, in words; empty: nothing is in its way any more. True: that was news.
  bool Set(const std::string& cluster, const std::string& job_uid, const std::string& what) {
    const base::MutexLock lock(mutex_);
    if (what.empty()) {
      const auto at = found_.find(cluster);
      if (at == found_.end() || at->second.erase(job_uid) == 0) return false;
      if (at->second.empty()) found_.erase(at);
      return true;
    }
    std::string& reported = found_[cluster][job_uid];
    if (reported == what) return false;
    reported = what;
    return true;
  }
  // Empty: none is known.
  std::string Of(const std::string& cluster, const std::string& job_uid) const {
    const base::MutexLock lock(mutex_);
    const auto at = found_.find(cluster);
    if (at == found_.end()) return "";
    const auto of_job = at->second.find(job_uid);
    return of_job == at->second.end() ? "" : of_job->second;
  }
  // One of any job's in that cluster; empty: none is known.
  std::string In(const std::string& cluster) const {
    const base::MutexLock lock(mutex_);
    const auto at = found_.find(cluster);
    return at == found_.end() ? "" : at->second.begin()->second;
  }
  void Forget(const std::string& job_uid) {
    const base::MutexLock lock(mutex_);
    for (auto at = found_.begin(); at != found_.end();) {
      at->second.erase(job_uid);
      at = at->second.empty() ? found_.erase(at) : std::next(at);
    }
  }

 private:
  mutable base::Mutex mutex_;
  std::map<std::string, std::map<std::string, std::string>> found_ ABSL_GUARDED_BY(mutex_);  // by cluster and job uid; none is empty
};

}  // namespace fusionllm::op::controller
