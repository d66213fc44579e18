// What clusters have said of jobs' Pods: whether they were asked for this attempt, and what they refuse.
//
// Shared by the parts of a job, of which the hub's alone writes the status. In memory alone, and of few jobs: what is not here is asked
// again, which changes nothing in the cluster. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "operator/lifecycle/observation.h"
#include "operator/reconcile/refusal.h"

namespace fusionllm::op {

class Trials {
 public:
  static constexpr size_t kMostJobs = 4096;

  // Of one job in one cluster. A refusal holds for the spec that it was about, that nothing is refused for the attempt.
  struct About {
    std::string job_uid, cluster;
    int64_t generation = 0;
    int64_t attempt = 0;
  };
  struct Standing {
    bool accepted = false;                        // asked for this attempt, and it would take its Pods
    std::optional<Refusal> refusal;               // what it said last; stays until something was made in spite of it
    absl::Time again = absl::InfinitePast();      // before that it is not asked again
    absl::Time awaited = absl::InfiniteFuture();  // since when somebody waits for the first answer
  };

  Standing Of(const About& about) const;
  // Somebody waits for the answer, from `now` on unless somebody does already. Since when.
  absl::Time Await(const About& about, absl::Time now);
  // True: that was news.
  bool Accept(const About& about);
  bool Refuse(const About& about, const Refused& refused, absl::Time now);
  // All that was wanted there is there: nothing is refused any more. True: something was.
  bool Succeed(const About& about);
  void Forget(const std::string& job_uid);

 private:
  struct Entry {
    int64_t generation = 0, attempt = 0;
    Standing standing;
  };
  // Of that spec and attempt; what is known of others does not hold for it.
  Entry& EntryOf(const About& about);
  static void Renew(const About& about, Entry& entry);

  mutable std::mutex mutex_;
  std::map<std::string, std::map<std::string, Entry>> entries_;  // by job uid, cluster
};

}  // namespace fusionllm::op
