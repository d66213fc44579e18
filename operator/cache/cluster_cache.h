// The pods and owner ConfigMaps of one cluster, cached by informers, with the client to write there.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kube/watch/heartbeat_client.h"
#include "lib/kube/watch/informer.h"
#include "lib/kube/watch/write_barrier.h"
#include "operator/cache/cluster_inventory.h"
#include "operator/cache/member.h"

namespace fusionllm::op::cache {

class CachedOwnerConfigMap;

// Called on a thread of the cache for each change of a pod or an owner ConfigMap, with the job that it belongs to.
using JobChanged = std::function<void(const kube::ObjectKey& job, bool urgent)>;

class ClusterCache : public Member {
 public:
  // Watches end and begin again as a matter of course.
  static constexpr absl::Duration kLossTimeout = absl::Seconds(30);
  static constexpr absl::Duration kCompareEvery = absl::Minutes(10);  // the owner calls CompareWithServer()
  static constexpr size_t kCaches = 4;                                // pods and owner ConfigMaps of jobs; nodes, and pods of others

  // Only objects with this origin are read, nodes and what pods take of them aside, through `reads`. All passed by reference, and
  // `metrics`, which may be null, must outlive it. `on_capacity_increase`: ClusterInventory's. `limits`: of each of its
  // kCaches caches.
  ClusterCache(std::string name, const std::string& origin, kube::HeartbeatClient& reads, kube::ApiClient& writes, kube::Clock& clock,
               const kube::InformerMetrics* metrics, JobChanged changed, std::function<void()> on_capacity_increase = {},
               const kube::ReflectorLimits& limits = {});

  void Start();
  void Stop();
  // Blocks until the first lists are in the cache, and what nodes have, too, or is known not to be had. False: one
  // of the five lists did not come within `timeout`; they are waited for one after the other.
  bool WaitForSync(absl::Duration timeout);
  // Whether that is so. Once it is, it stays so.
  bool Listed() const;
  // Whether the watches of pods and owner ConfigMaps have been open at the same time. Once they have, it stays so.
  bool Watched() const;
  // Unauthenticated: a watch has ended and does not begin again, because the server refuses us or we have no credentials for it. At once,
  // while Connection() still waits. OK in all other cases.
  absl::Status Credentials() const;
  // OK: the first lists are in the cache and the watches of pods and owner ConfigMaps are open, or were within kLossTimeout and the server
  // still answers. Else why not: Unauthenticated or PermissionDenied if the server refuses us or we have no credentials for it, Unavailable
  // in all other cases.
  absl::Status Connection() const;
  // Compares the caches with the server, and lists again what differs, which is logged and counted. Blocks; errors: it is not known.
  absl::Status CompareWithServer(std::stop_token stop);

  const std::string& name() const override { return name_; }
  bool reachable() const override { return Connection().ok(); }
  bool lost() const override { return false; }  // this one alone cannot say how long is too long
  kube::ApiClient& client() const override { return writes_; }
  std::vector<lifecycle::PodView> PodsOf(const manifests::JobIdentity& job) const override;
  std::optional<OwnerConfigMapView> OwnerConfigMapOf(const manifests::JobIdentity& job) const override;
  std::optional<BrokerReport> LastReportOf(const manifests::JobIdentity& job) const override;
  std::vector<OwnerConfigMapView> OwnerConfigMaps() const override;
  void Wrote(const std::string& job_uid, const kube::Resource& resource, const std::string& answer) override;
  bool SeenWrites(const std::string& job_uid) override;
  std::shared_ptr<const ClusterCapacity> Capacity() const override { return inventory_.Capacity(); }

 private:
  bool AllSeenLocked(const std::set<kube::ObjectKey>& keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(writes_mutex_);
  struct JobKey {
    std::string ns, name, uid;
    auto operator<=>(const JobKey&) const = default;
  };
  static JobKey KeyOf(const manifests::JobIdentity& job) { return {job.ns, job.name, job.uid}; }
  // Of the one that is there, and of those that have gone.
  std::set<std::string> OwnerConfigMapUids(const manifests::JobIdentity& job) const;
  void Remember(const CachedOwnerConfigMap& seen);
  void ForgetOwnerConfigMapsWithoutPods();
  void KeepReport(const kube::InformerEvent& gone);
  void ForgetReport(const manifests::JobIdentity& job);

  const std::string name_;
  const kube::HeartbeatClient& reads_;
  kube::ApiClient& writes_;
  kube::Clock& clock_;
  mutable base::Mutex mutex_;
  mutable bool watched_ ABSL_GUARDED_BY(mutex_) = false;                   // all watches have been open
  mutable std::optional<absl::Duration> lost_at_ ABSL_GUARDED_BY(mutex_);  // no watch since then
  mutable base::Mutex left_mutex_;
  std::map<JobKey, BrokerReport> reports_ ABSL_GUARDED_BY(left_mutex_);  // of jobs with an owner ConfigMap
  // Uids of those that are there, and of gone ones that pods may have as owner.
  std::map<JobKey, std::set<std::string>> owner_config_maps_seen_ ABSL_GUARDED_BY(left_mutex_);
  kube::Informer pods_, owner_config_maps_;
  kube::WriteBarrier pod_writes_, owner_config_map_writes_;
  base::Mutex writes_mutex_;
  // By job uid: what may not be in the caches yet.
  std::map<std::string, std::set<kube::ObjectKey>> written_ ABSL_GUARDED_BY(writes_mutex_);
  ClusterInventory inventory_;
  mutable std::atomic<bool> listed_ = false;  // Listed() was true: it is asked for each look at a job
};

}  // namespace fusionllm::op::cache
