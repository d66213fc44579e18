// Places jobs on the clusters that there are, one after the other, so that no two count on the same room; with a hint cache, where they
// should run fastest. Thread-safe; blocks for its turn and, of a job whose graph lies in a ConfigMap, on the hub's API server.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "lib/base/mutex.h"
#include "operator/cache/member.h"
#include "operator/placement/candidates.h"
#include "operator/placement/hint_cache.h"
#include "operator/placement/measured_links.h"
#include "operator/placement/placement.h"
#include "operator/placement/reservations.h"

namespace fusionllm::op::placement {

class Placer {
 public:
  // All must outlive it. `hints` null: the scheduler is not asked.
  // `measured` null: nothing has been measured.
  Placer(const cache::Member& hub, const cache::Members& members, HintCache* hints = nullptr, const MeasuredLinks* measured = nullptr)
      : hub_(hub), members_(members), hints_(hints), measured_(measured) {}

  // How long what is said of a shortage may be old: amounts that are free change all the time, and each change would be a write.
  static constexpr absl::Duration kMessageRefresh = absl::Seconds(30);

  // Where the job's executors would go now. With `reserve` what it takes is kept from others until its pods are there, and the hint cache
  // is asked first: while it has no answer, nothing is placed.
  Placement Propose(const CandidatesRequest& request, bool reserve);
  // Its pods do not come for now: others may have the room.
  void Release(const std::string& job_uid) {
    const base::MutexLock lock(mutex_);
    reservations_.Release(job_uid);
  }
  // Drops what is kept for nothing any more; somebody should ask for that every so often.
  void ForgetExpired(absl::Time now) {
    const base::MutexLock lock(mutex_);
    reservations_.Forget(now);
  }

 private:
  // No hint and nothing pending: the job leaves no choice, or cannot be asked about.
  struct HintResult {
    bool pending = false;
    std::optional<PlacementHint> hint;
  };
  HintResult QueryScheduler(const CandidatesRequest& request);
  absl::StatusOr<PlacementQuery> QueryAbout(const CandidatesRequest& request, const SearchSpace& space) const;
  // Says again what was said a moment ago, if it is of the same kind.
  void KeepMessage(const CandidatesRequest& request, Placement& placement) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const cache::Member& hub_;
  const cache::Members& members_;
  HintCache* const hints_;
  const MeasuredLinks* const measured_;
  base::Mutex mutex_;
  Reservations reservations_ ABSL_GUARDED_BY(mutex_);
  struct Said {
    std::string problem, shortage;
    absl::Time at;
  };
  std::map<std::string, Said> said_ ABSL_GUARDED_BY(mutex_);  // by job uid
};

}  // namespace fusionllm::op::placement
