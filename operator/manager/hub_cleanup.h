// The work on the hub that belongs to no job: what is kept for nothing is dropped, caches are compared with the server, what jobs have left
// is collected.
#pragma once

#include <functional>
#include <stop_token>

#include "lib/kube/clock.h"
#include "lib/kube/queue/controller.h"
#include "operator/cache/cluster_cache.h"
#include "operator/cache/job_cache.h"
#include "operator/controller/orphan_collector.h"

namespace fusionllm::op::manager {

// For one thread at a time.
class HubCleanup {
 public:
  // All must outlive it. `forget_expired` drops what others keep for nothing any more.
  HubCleanup(std::function<void()> forget_expired, cache::ClusterCache& hub, cache::JobCache& jobs, controller::OrphanCollector& collector,
             kube::Clock& clock);

  // One round, and when the next is due. The caches are compared in the first that is ClusterCache::kCompareEvery after the last time.
  // Blocks on the hub's API server.
  kube::ReconcileResult RunPeriodicCleanup(const std::stop_token& stop);

 private:
  const std::function<void()> forget_expired_;
  cache::ClusterCache& hub_;
  cache::JobCache& jobs_;
  controller::OrphanCollector& collector_;
  kube::Clock& clock_;
  absl::Duration compare_at_;
};

}  // namespace fusionllm::op::manager
