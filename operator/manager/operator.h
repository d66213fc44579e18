// The operator of one hub: caches, connections, queues and reconcilers, made in the order in which they need each other and ended in the
// reverse.
//
// Nothing is asked of a server before Run(). Some members call others that are made after them (a member's workers reconcile jobs, which
// are written to members): they do so from Run() to its end alone.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/lease/fenced_client.h"
#include "lib/kube/lease/leader_elector.h"
#include "lib/kube/queue/controller.h"
#include "lib/kube/watch/heartbeat_client.h"
#include "lib/metrics/registry.h"
#include "operator/cache/cluster_cache.h"
#include "operator/cache/job_cache.h"
#include "operator/cache/progress_poller.h"
#include "operator/controller/job_events.h"
#include "operator/controller/job_reconciler.h"
#include "operator/controller/orphan_collector.h"
#include "operator/controller/tombstones.h"
#include "operator/federation/access_providers.h"
#include "operator/federation/cluster_registry.h"
#include "operator/federation/member_client.h"
#include "operator/kueue/workload_cache.h"
#include "operator/manager/flags.h"
#include "operator/manager/fleet_metrics.h"
#include "operator/manager/leader_fence.h"
#include "operator/manager/operator_metrics.h"
#include "operator/placement/hint_cache.h"
#include "operator/placement/measured_links.h"

namespace fusionllm::op::manager {

struct OperatorOptions {
  Flags flags;                                   // checked; as they were at the start
  federation::AccessProviders access_providers;  // of ClusterProfiles
  std::string ns;                                // of the operator: the Lease, Secrets of members, tombstones
  std::string hub_uid;                           // ReadClusterUid() of the hub
  std::string identity;                          // of this process, as a leader and in events
  std::string user_agent;                        // towards members
};

class Operator {
 public:
  // All must outlive it; `registry` may be scraped only while it lives.
  Operator(OperatorOptions options, kube::RestClient& hub, metrics::Registry& registry, OperatorMetrics& metrics, kube::Clock& clock);

  // Lists the hub, waits for the lead, and reconciles until `stop` is requested: then it ends what runs and gives the lead back. Once;
  // blocks. Cancelled: asked to stop before it led. Else why it cannot work. Where the lead is lost it ends the process.
  absl::Status Run(const std::stop_token& stop);

  // For /healthz and /readyz. Thread-safe, do not block.
  absl::Status CheckAlive() const;
  absl::Status CheckReady() const;

 private:
  federation::MemberContext MakeMemberContext();
  federation::RegistryOptions MakeRegistryOptions();
  controller::ReconcilerOptions MakeReconcilerOptions();

  absl::Status MayWrite() const { return options_.flags.elect ? fence_.MayWrite() : absl::OkStatus(); }
  // A job, or a part of it on the hub, has changed.
  void EnqueueJob(const kube::ObjectKey& job, bool urgent);
  // There may be more room in a cluster than before.
  void EnqueueWaitingJobs();
  bool KnowsJob(const kube::ObjectKey& key, const std::string& uid) const;
  // Those of jobs with a part in that cluster.
  std::set<std::string> NamespacesIn(const std::string& cluster) const;
  void LearnLinks(const kube::WorkKey& key, const std::string& page);
  kube::ReconcileResult Reconcile(const kube::WorkKey& key, std::stop_token stop);

  absl::Status Sync(const std::stop_token& stop);
  absl::Status Lead(const std::stop_token& stop);
  void EnqueueAll();
  // From now on until `stop` is requested.
  void RunControllers(const std::stop_token& stop);

  const OperatorOptions options_;
  kube::RestClient& client_;
  OperatorMetrics& metrics_;
  kube::Clock& clock_;

  kube::LeaderElector elector_;
  LeaderFence fence_;
  kube::HeartbeatClient hub_reads_;
  kube::FencedClient hub_writes_;

  kube::WorkQueue job_queue_, capacity_queue_, cleanup_queue_;
  // Before, and in a standby, members are connected and listed, so that it can go on at once; nothing else is done.
  std::atomic<bool> leads_ = false;
  std::atomic<bool> ready_ = false;  // the hub's caches are complete

  cache::ClusterCache hub_;
  cache::JobCache jobs_;
  kueue::WorkloadCache workloads_;
  controller::JobEvents events_;
  controller::Tombstones tombstones_;
  controller::OrphanCollector collector_;

  const federation::MemberClientOptions member_options_;
  federation::ClusterRegistry members_;
  placement::MeasuredLinks links_;
  cache::ProgressPoller progress_;
  const std::unique_ptr<placement::HintCache> hints_;  // null: no scheduler is asked
  controller::JobReconciler reconciler_;
  const FleetMetrics fleet_metrics_;
};

}  // namespace fusionllm::op::manager
