// A cache of the objects of one kind in one cluster, kept up to date, that tells handlers what changed.
//
// Handlers are called on one thread of the informer, never two at a time, each change of an object after the one before it. A slow handler
// holds up neither the reading nor the cache: what changes meanwhile about the same object is delivered as one change, so what waits is
// never more than one entry for each object. Handlers may call the informer, but not Stop() it.
//
// Objects that vanished while there was no connection are delivered as deleted all the same, in the last state known. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/watch/informer_metrics.h"
#include "lib/kube/watch/object.h"
#include "lib/kube/watch/reflector.h"
#include "lib/kube/watch/store.h"

namespace fusionllm::kube {

struct InformerEvent {
  enum class Kind { kAdded, kUpdated, kDeleted };
  Kind kind;
  ObjectPtr object;  // as it is now; deleted: as it last was
  ObjectPtr old;     // what this handler got before; null for kAdded
  // Not because of a change just now, so not urgent: part of the first list, or delivered again for safety.
  bool initial = false;
  bool resync = false;
};

struct InformerState {
  bool synced = false;      // the first list is in the cache
  bool watching = false;    // a watch is open now
  absl::Status last_error;  // why there was none, the last time it failed
};

class Informer : private ReflectorSink {
 public:
  using Handler = std::function<void(const InformerEvent& event)>;
  // Of so many objects it is kept that they are there and cannot be read.
  static constexpr size_t kMaxUnreadable = 1000;

  struct Options {
    std::string cluster = {};  // in metrics
    WatchScope scope;
    DecodeObject decode;
    ReflectorLimits limits = {};
    std::optional<uint64_t> seed = {};  // of the random parts of waiting times; none: another in each informer
  };

  // `client`, `clock` and `metrics` (which may be null) must outlive the informer.
  Informer(ApiClient& client, Clock& clock, const InformerMetrics* metrics, Options options);
  ~Informer() override;

  void AddIndex(const std::string& name, IndexFunction function);  // before Start()
  // At any time; a handler that comes late gets all objects first. Every `resync` it gets all again, from the cache.
  void AddHandler(Handler handler, absl::Duration resync = absl::Hours(10));

  void Start();
  // Waits until no handler runs any more. What was not delivered is dropped.
  void Stop();

  // Whether the first list is in the cache and every handler that was there by then has got all of it.
  bool HasSynced() const;
  // Blocks until then. False: not within `timeout`, or stopped.
  bool WaitForSync(absl::Duration timeout) const;
  // Blocks until the first list is in the cache or could not be had, which State() says. False: neither within `timeout`, or stopped.
  bool WaitForFirstList(absl::Duration timeout) const;
  InformerState State() const;

  // Asks the server for the names and versions of all objects at the very version that the cache stands at, and compares. False, and
  // counted, if they differ, or if the server's newest state is older than the cache's, as after its store was put back: the cache is
  // wrong. What cannot be read is left out. Errors: the server does not have that version any more, or did not answer; more than
  // kMaxUnreadable objects cannot be read. Blocks.
  absl::StatusOr<bool> IsConsistent(const CallOptions& call = {.timeout = absl::Minutes(2)}) const;

  // Lists all again, as after IsConsistent() has said false. Does not block.
  void Relist() { reflector_.Relist(); }

  ObjectPtr Get(const ObjectKey& key) const;
  // In no order, and in another one in each process.
  std::vector<ObjectPtr> Find(const std::string& index, const std::string& value) const;
  std::vector<ObjectPtr> All() const;
  size_t size() const;
  // Up to where the cache follows the server; empty before the first list.
  std::string resource_version() const;

 private:
  struct Pending {
    ObjectPtr known;  // the handler's picture; null: it knows of none
    ObjectPtr now;    // null: gone
    ObjectPtr last;   // of what `known` is of, if that is gone: as it last was
    bool initial = false, resync = false;
    absl::Duration received;
  };
  struct Listener {
    Handler handler;
    absl::Duration resync, next_resync;
    absl::flat_hash_map<ObjectKey, Pending> pending;
    std::deque<ObjectKey> order;
    int64_t initial_left = -1;  // entries of the first list that it has not got; -1: there was no list yet
  };

  void Replace(std::vector<ObjectPtr> objects, const std::vector<ObjectKey>& unreadable, const std::string& resource_version) override;
  absl::Status Fits(const Object& object) override;
  void Apply(WatchEventType type, ObjectPtr object) override;
  void Unreadable(const ObjectKey& key, const std::string& resource_version) override;
  void Advance(const std::string& resource_version) override;
  void Watching(bool open, const absl::Status& why) override;

  void NotifyLocked(const ObjectKey& key, const ObjectPtr& old, const ObjectPtr& now, const ObjectPtr& last)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(Listener& listener, const ObjectKey& key, Pending pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FollowLocked(const std::string& resource_version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepUnreadableLocked(const ObjectKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StoredLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellQueuedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the newest state that the server has is older than `resource_version`, of which it has said `refusal`.
  bool ServerWentBack(const std::string& resource_version, const CallOptions& call, const absl::Status& refusal) const;
  bool SyncedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `holds` is called with the lock held.
  bool WaitUntil(absl::FunctionRef<bool()> holds, absl::Duration timeout) const;
  void Dispatch(const std::stop_token& stop);
  void ResyncLocked(Listener& listener) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Tell(const Handler& handler, const Pending& pending);

  ApiClient& client_;
  Clock& clock_;
  const Options options_;
  const InformerMetrics::Recorder recorder_;
  Reflector reflector_;

  mutable base::Mutex mutex_;
  mutable std::condition_variable changed_;
  Store store_ ABSL_GUARDED_BY(mutex_);
  std::string version_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<ObjectKey> unreadable_ ABSL_GUARDED_BY(mutex_);  // there, but not in store_ as they are now
  bool more_unreadable_ ABSL_GUARDED_BY(mutex_) = false;               // than are kept
  bool listed_ ABSL_GUARDED_BY(mutex_) = false;
  InformerState state_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Listener>> listeners_ ABSL_GUARDED_BY(mutex_);
  std::jthread reader_, dispatcher_;
};

}  // namespace fusionllm::kube
