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
#include "operator/cleanup/orphan_collector.h"
#include "operator/cleanup/tombstones.h"
#include "operator/federation/access_providers.h"
#include "operator/federation/cluster_registry.h"
#include "operator/federation/leader_fence.h"
#include "operator/federation/member_client.h"
#include "operator/fleet/fleet_metrics.h"
#include "operator/members/cluster_cache.h"
#include "operator/placement/hint_cache.h"
#include "operator/placement/measured_links.h"
#include "operator/process/flags.h"
#include "operator/process/operator_metrics.h"
#include "operator/progress/progress_poller.h"
#include "operator/queueing/workload_cache.h"
#include "operator/reconcile/job_cache.h"
#include "operator/reconcile/job_events.h"
#include "operator/reconcile/job_reconciler.h"

namespace fusionllm::op {

struct OperatorOptions {
  Flags flags;                       // checked; as they were at the start
  AccessProviders access_providers;  // of ClusterProfiles
  std::string ns;                    // of the operator: the Lease, Secrets of members, tombstones
  std::string hub_uid;               // ReadClusterUid() of the hub
  std::string identity;              // of this process, as a leader and in events
  std::string user_agent;            // towards members
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
  MemberContext MakeMemberContext();
  RegistryOptions MakeRegistryOptions();
  ReconcilerOptions MakeReconcilerOptions();

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

  ClusterCache hub_;
  JobCache jobs_;
  WorkloadCache workloads_;
  JobEvents events_;
  Tombstones tombstones_;
  OrphanCollector collector_;

  const MemberClientOptions member_options_;
  ClusterRegistry members_;
  MeasuredLinks links_;
  ProgressPoller progress_;
  const std::unique_ptr<HintCache> hints_;  // null: no scheduler is asked
  JobReconciler reconciler_;
  const FleetMetrics fleet_metrics_;
};

}  // namespace fusionllm::op
