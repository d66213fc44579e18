// When it was last looked whether all is still there that jobs need beside their Pods. Somebody may delete a Secret or a Service, and
// no event tells of that: a job that is not ready may be waiting for just that, and one that is ready has all it needs.
//
// Only in memory, of jobs that are not ready: what is not here is looked at once more. Thread-safe.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace fusionllm::op::controller {

class RecheckTimer {
 public:
  // Whether it was `every` ago or longer, at `now`, which is then the last time. The first time says no: all has just been made.
  bool Due(const std::string& job_uid, const std::string& cluster, absl::Time now, absl::Duration every) {
    const base::MutexLock lock(mutex_);
    const auto [last, is_new] = looked_at_[job_uid].try_emplace(cluster, now);
    if (is_new || now < last->second + every) return false;
    last->second = now;
    return true;
  }

  void Forget(const std::string& job_uid) {
    const base::MutexLock lock(mutex_);
    looked_at_.erase(job_uid);
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, std::map<std::string, absl::Time>> looked_at_ ABSL_GUARDED_BY(mutex_);  // by job, then by cluster
};

}  // namespace fusionllm::op::controller
