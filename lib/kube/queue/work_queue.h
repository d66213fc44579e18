// The keys whose objects somebody has to look at. Adding is cheap and may be done from event handlers; workers take keys out.
//
// A key that is added again while it waits is there once. A key is never with two workers at a time: added while it is being worked on, it
// comes again after Done(). So the worker that takes it after an Add() sees the state that led to the Add().
//
// Clusters take turns, so one with many keys does not hold up another. High priority goes before low, except that every kLowPriorityTurn-th
// key is a low one, if there is one: initial lists and resyncs wait for what users do, but not for ever.
//
// Thread-safe. Memory: one entry for each key that waits, is worked on or has failed, which alone holds the key: some 250 bytes.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/container/node_hash_map.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/clock.h"
#include "lib/kube/queue/queue_metrics.h"
#include "lib/kube/queue/rate_limiter.h"
#include "lib/kube/queue/work_key.h"

namespace fusionllm::kube {

enum class Priority { kLow, kHigh };

inline constexpr int kLowPriorityTurn = 8;

class WorkQueue {
 public:
  // `name` in metrics. `clock` and `metrics` (which may be null) must outlive the queue.
  WorkQueue(std::string name, Clock& clock, QueueMetrics* metrics, RetryLimits limits = {});
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Add(const WorkKey& key, Priority priority = Priority::kHigh);
  // Adds it after `delay`. Of several, the earliest counts.
  void AddAfter(const WorkKey& key, absl::Duration delay, Priority priority = Priority::kHigh);
  // For a key that failed: after a delay that grows with each failure in a row, and not faster than the cluster's share allows.
  void AddRateLimited(const WorkKey& key, Priority priority = Priority::kHigh);
  // The key has succeeded: its next failure is the first.
  void Forget(const WorkKey& key);
  int Failures(const WorkKey& key) const;

  // Blocks for the next key. Nothing when the queue is shut down and empty.
  std::optional<WorkKey> Get();
  // The worker has finished with a key that Get() gave.
  void Done(const WorkKey& key);

  // Takes no more keys and drops those whose time has not come. Get() still hands out what waits.
  void ShutDown();
  // ShutDown(), then waits until all is handed out and done; keys added again meanwhile by those at work are not. False: not within
  // `timeout`.
  bool ShutDownWithDrain(absl::Duration timeout);

  size_t Depth() const;  // that wait for a worker now
  const std::string& name() const { return name_; }
  // Of the keys being worked on: seconds since they were taken, together and the longest.
  QueueMetrics::Unfinished UnfinishedWork() const;

 private:
  using Keys = std::list<const WorkKey*>;  // those of entries
  // Everything known of a key. It is erased when nothing is.
  struct Entry {
    std::optional<Keys::iterator> place;  // in its lane; none: waits in none
    bool added = false;                   // waits, or is to wait once it is done
    bool processing = false;
    Priority priority = Priority::kLow;
    Priority due_priority = Priority::kLow;
    int failures = 0;
    absl::Duration added_at, started_at;
    std::optional<absl::Duration> due;
  };
  // Keys of one priority.
  struct Lane {
    std::map<std::string, Keys, std::less<>> clusters;  // without empty ones
    std::deque<std::string> turns;                      // those clusters, each once
  };
  // Not flat: a table with room for the keys of a burst was 360 kB in each of the operator's queues, twice what the keys need.
  using Entries = absl::node_hash_map<WorkKey, Entry>;
  struct Due {
    absl::Duration at;
    const WorkKey* key;  // its entry's
    bool operator<(const Due& other) const { return std::tie(at, *key) < std::tie(other.at, *other.key); }
  };

  void AddLocked(const WorkKey& key, Priority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddAfterLocked(const WorkKey& key, absl::Duration delay, Priority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnterLane(Entries::value_type& of) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveLane(Entries::value_type& of) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<WorkKey> Pop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<WorkKey> PopLane(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EraseIfIdle(Entries::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Lane& LaneOf(Priority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lanes_[priority == Priority::kHigh ? 1 : 0]; }

  const std::string name_;
  Clock& clock_;
  QueueMetrics* const metrics_;
  const RetryLimits limits_;

  mutable base::Mutex mutex_;
  std::condition_variable changed_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  Lane lanes_[2] ABSL_GUARDED_BY(mutex_);
  size_t depth_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t processing_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<Due> due_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, TokenBucket, std::less<>> buckets_ ABSL_GUARDED_BY(mutex_);  // by cluster
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace fusionllm::kube
