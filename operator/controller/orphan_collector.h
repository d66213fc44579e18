// Deletes from a cluster what jobs have left there that are no more: what a tombstone speaks of, and what carries this hub's label without
// a job on the hub.
//
// Of the second kind is what a job left that went without the operator (its finalizer taken off by hand), or what was made by a write that
// came through after its job had been let go. To be taken for that an owner ConfigMap must have this hub's uid in its label, so that hubs
// that share a cluster leave each other's objects alone whatever they call themselves; the hub's API server itself must say, twice, that
// there is no such job; caches alone are not believed. What a job asked to preserve is left alone.
//
// Level-based; thread-safe for different clusters at once; blocks on the API servers.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/queue/controller.h"
#include "lib/metrics/registry.h"
#include "operator/cache/member.h"
#include "operator/controller/tombstones.h"

namespace fusionllm::op::controller {

// fusionllm_orphans and fusionllm_gc_deleted_total. One for a process; its registry must outlive it.
class OrphanMetrics {
 public:
  explicit OrphanMetrics(metrics::Registry& registry);

 private:
  friend class OrphanCollector;
  metrics::Gauge orphans_;
  metrics::Counter deleted_;
};

class OrphanCollector {
 public:
  static constexpr absl::Duration kEvery = absl::Minutes(1);
  static constexpr absl::Duration kUnreachablePeriod = absl::Seconds(5);  // so that what is owed is done soon after a cluster is back
  static constexpr int kPassesBetweenCounts = 12;  // at a cluster that is away: what it owes does not change by itself

  // Whether the hub's cache has the job with this uid.
  using KnowsJob = std::function<bool(const kube::ObjectKey& job, const std::string& uid)>;

  // `hub_uid` empty: nothing is known to be this hub's, so that only tombstones count. References, and `metrics`, which may be null, must
  // outlive it.
  OrphanCollector(kube::ApiClient& hub, std::string hub_uid, Tombstones& tombstones, KnowsJob knows_job, const OrphanMetrics* metrics)
      : hub_(hub), hub_uid_(std::move(hub_uid)), tombstones_(tombstones), knows_job_(std::move(knows_job)), metrics_(metrics) {}

  // One look at a cluster, and when to look again.
  kube::ReconcileResult Collect(cache::Member& member, std::stop_token stop);
  // A cluster is a member no more. Does not block.
  void Leave(const std::string& cluster);

 private:
  // What a cluster that is away owes, as far as tombstones tell.
  kube::ReconcileResult CountPendingCleanup(const std::string& cluster, const std::stop_token& stop);
  absl::Status ProcessTombstone(cache::Member& member, const Tombstone& tombstone, const std::stop_token& stop);
  absl::Status Delete(cache::Member& member, const cache::OwnerConfigMapView& owner_config_map, const std::stop_token& stop);
  // Asks the hub's API server, not the cache.
  absl::StatusOr<bool> JobExists(const cache::OwnerConfigMapView& owner_config_map, const std::stop_token& stop) const;

  kube::ApiClient& hub_;
  const std::string hub_uid_;
  Tombstones& tombstones_;
  const KnowsJob knows_job_;
  const OrphanMetrics* const metrics_;
  base::Mutex mutex_;
  struct Known {
    std::set<std::string> suspects;  // uids of owner ConfigMaps without a job at the last look
    int passes_while_unreachable = 0;
  };
  std::map<std::string, Known> known_ ABSL_GUARDED_BY(mutex_);  // by cluster
};

}  // namespace fusionllm::op::controller
