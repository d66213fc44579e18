// Keeps a controller from deciding by a cache that has not seen its own last writes: it would make everything twice.
//
// The writer notes what the server answered; before it decides about an object again it asks whether the caches have caught up. A note
// that never comes true (the object was changed and deleted by others meanwhile) is forgotten after `timeout`, so that nothing stops for
// ever. Thread-safe. Memory: one entry for each object written that its cache has not shown yet.
#pragma once

#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/api/resource.h"
#include "lib/kube/clock.h"
#include "lib/kube/watch/informer.h"

namespace fusionllm::kube {

class WriteBarrier {
 public:
  // For the writes to one kind in one cluster, which `informer` caches. Both must outlive the barrier.
  WriteBarrier(const Informer& informer, Clock& clock, absl::Duration timeout = absl::Minutes(5))
      : informer_(informer), clock_(clock), timeout_(timeout) {}

  // The server answered a create, update, patch or apply with this version.
  void Wrote(const ObjectKey& key, const std::string& resource_version);
  // The server took a delete of the object with this uid. Not for objects that finalizers or a grace period keep: theirs is a Wrote().
  void Deleted(const ObjectKey& key, const std::string& uid);

  // Whether the cache shows what was last written to this object.
  bool Seen(const ObjectKey& key);
  // All objects written to, of those that `matters` names.
  bool AllSeen(const std::function<bool(const ObjectKey& key)>& matters);

 private:
  struct Expected {
    std::string version;  // at least this one
    std::string gone;     // or: the object of this uid no more
    absl::Duration until;
  };
  bool IsSeen(const ObjectKey& key, const Expected& expected) const;
  void Expect(const ObjectKey& key, Expected expected);

  const Informer& informer_;
  Clock& clock_;
  const absl::Duration timeout_;
  base::Mutex mutex_;
  absl::flat_hash_map<ObjectKey, Expected> expected_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::kube
