// The nodes of one cluster and what all its pods take of them, cached by informers.
//
// Apart from the caches that jobs are led by: a cluster that does not let its nodes be seen can be used all the same. The operator's own
// pods are those of such a cache; of the others only name, node and requests are kept. Thread-safe.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/watch/informer.h"
#include "operator/cache/capacity.h"

namespace fusionllm::op::cache {

class ClusterInventory {
 public:
  // `ours` caches a JobPod for each pod with this origin, and is started and stopped by its owner; all calls of `on_capacity_increase` are
  // over when it and the inventory are stopped. It, `client`, `clock` and `metrics` (which may be null) must outlive the inventory.
  // `on_capacity_increase`: called on a thread of `ours` or the inventory whenever there may be more room than before; may be empty.
  // `limits`: of each cache.
  ClusterInventory(const std::string& cluster, const std::string& origin, kube::Informer& ours, kube::ApiClient& client, kube::Clock& clock,
                   const kube::InformerMetrics* metrics, std::function<void()> on_capacity_increase,
                   const kube::ReflectorLimits& limits = {});

  void Start();
  void Stop();
  // Blocks until the first lists are in the cache or could not be had. False: not within `timeout`.
  bool WaitForFirstLists(absl::Duration timeout) const;
  // Blocks until, besides, those who hear of growth have heard of all of them; false: not within `timeout`.
  bool WaitForSync(absl::Duration timeout) const;

  // The newest known; null while the first lists are not in the cache, or may not be had: then nothing is known of its room.
  std::shared_ptr<const ClusterCapacity> Capacity() const;
  // Why there is none.
  absl::Status Status() const;
  // Since when that node has not been ready; nothing: it is, or it is not known, as while nodes are not watched.
  std::optional<absl::Time> AwaySince(const std::string& node) const;

 private:
  kube::Informer& ours_;
  kube::Informer nodes_, others_;
  mutable base::Mutex mutex_;
  mutable std::shared_ptr<const ClusterCapacity> capacity_ ABSL_GUARDED_BY(mutex_);  // null: to be made again
  mutable std::array<std::string, 3> versions_ ABSL_GUARDED_BY(mutex_);              // of the caches that it was made of
};

}  // namespace fusionllm::op::cache
