// Asks the scheduler service where jobs run fastest, and remembers what it said.
//
// A query is put once, however often somebody looks; it is another when the job, the room that there is or the ways between clusters
// have changed in what it says of them. Asking is done by one thread of its own, so that no job waits for another's answer while something
// else could be done for it. Thread-safe; nothing blocks but the destructor, until the call under way has been stopped.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/clock.h"
#include "operator/manifests/identity.h"
#include "operator/placement/placement_hint.h"
#include "operator/placement/query.h"

namespace fusionllm::op::placement {

class HintCache {
 public:
  // The plan document; blocks for `timeout` at most, or until `stop` is requested.
  using Ask = std::function<absl::StatusOr<std::string>(const PlacementQuery& query, absl::Duration timeout, std::stop_token stop)>;
  // The job has its answer. Called on a thread of its own; does not block.
  using Answered = std::function<void(const manifests::JobIdentity& job)>;

  static constexpr absl::Duration kCallTimeout = absl::Seconds(5);
  // Together with the wait behind other jobs' questions.
  static constexpr absl::Duration kTimeout = absl::Seconds(30);
  static constexpr size_t kMaxJobs = 4096;  // that are remembered
  static constexpr absl::Duration kEntryTtl = absl::Minutes(10);

  // `clock` must outlive it.
  HintCache(Ask ask, Answered answered, kube::Clock& clock);
  ~HintCache();
  HintCache(const HintCache&) = delete;
  HintCache& operator=(const HintCache&) = delete;

  // Nothing: it is being asked, which takes no longer than kTimeout; look again within it.
  std::optional<PlacementHint> HintFor(const manifests::JobIdentity& job, const PlacementQuery& query);

 private:
  struct Entry {
    std::optional<size_t> fingerprint;  // of the query
    std::optional<PlacementHint> hint;  // of that query
    absl::Duration used_at;
    std::optional<absl::Duration> waits_since;  // for an answer, whichever questions were put meanwhile
  };
  struct Waiting {
    manifests::JobIdentity job;
    PlacementQuery query;
    size_t fingerprint = 0;
    absl::Duration since;
  };

  void Put(const manifests::JobIdentity& job, const PlacementQuery& query, size_t fingerprint, absl::Duration since)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work(const std::stop_token& stop);
  absl::StatusOr<std::string> Answer(const Waiting& waiting, const std::stop_token& stop);

  const Ask ask_;
  const Answered answered_;
  kube::Clock& clock_;
  base::Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mutex_);           // at most one for each entry
  std::map<std::string, Entry> known_ ABSL_GUARDED_BY(mutex_);  // by job uid
  std::jthread thread_;                                         // the last: it uses all of these
};

}  // namespace fusionllm::op::placement
