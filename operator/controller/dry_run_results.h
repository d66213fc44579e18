// What clusters have said of jobs' Pods: whether they were asked for this attempt, and what they refuse.
//
// Shared by the parts of a job, of which the hub's alone writes the status. In memory alone, and of kMaxJobs: what is not here is asked
// again, which changes nothing in the cluster. There is something of every job in each of its clusters for as long as it is there, so what
// few have, a refusal, is apart. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "operator/controller/refusal.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::controller {

class DryRunResults {
 public:
  static constexpr size_t kMaxJobs = 4096;

  // Of one job in one cluster. A refusal holds for the spec that it was about, that nothing is refused for the attempt.
  struct Key {
    std::string job_uid, cluster;
    int64_t generation = 0;
    int64_t attempt = 0;
  };
  struct Result {
    bool accepted = false;                        // asked for this attempt, and it would take its Pods
    std::optional<lifecycle::Refusal> refusal;    // what it said last; stays until something was made in spite of it
    absl::Time retry_at = absl::InfinitePast();   // before that it is not asked again
    absl::Time awaited = absl::InfiniteFuture();  // since when somebody waits for the first answer
  };

  Result Of(const Key& key) const;
  // Somebody waits for the answer, from `now` on unless somebody does already. Since when.
  absl::Time Await(const Key& key, absl::Time now);
  // True: that was news.
  bool Accept(const Key& key);
  bool Refuse(const Key& key, const Refused& refused, absl::Time now);
  // All that was wanted there is there: nothing is refused any more. True: something was.
  bool Succeed(const Key& key);
  void Forget(const std::string& job_uid);
  // Of how many clusters something is known: of others not even the name is kept.
  size_t clusters() const;

 private:
  struct Refusing {
    lifecycle::Refusal refusal;
    absl::Time retry_at;
  };
  struct Entry {
    const std::string* cluster = nullptr;  // a key of clusters_
    int64_t generation = 0, attempt = 0;   // of which it is; what is known of others does not hold for these
    absl::Time awaited = absl::InfiniteFuture();
    bool accepted = false;
    std::unique_ptr<const Refusing> refusing;  // null: nothing is refused
  };
  const Entry* Find(const Key& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of that spec and attempt.
  Entry& EntryOf(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(std::map<std::string, std::vector<Entry>>::iterator job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::map<std::string, std::vector<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // by job uid
  std::map<std::string, size_t> clusters_ ABSL_GUARDED_BY(mutex_);             // by name: how many entries are of it, at least one
};

}  // namespace fusionllm::op::controller
