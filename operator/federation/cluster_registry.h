// The member clusters: what FusionClusters on the hub name, connected as their Secrets or ClusterProfiles say, and their status.
//
// One key of a queue is one FusionCluster; it is looked at when it, its Secret or ClusterProfile has changed, every so often besides, and
// within a second when its connection has been lost or has come back; one that has been away for workerLostTimeoutSeconds counts as lost,
// whether there was a connection before or not, and so does one whose FusionCluster has been gone for as long. A cluster that is registered
// already, or that another one has replaced, is not connected. Its own workers ask each member who it is and all else; here nothing waits
// for one. Without any FusionCluster the hub lends devices itself; with some, only if one of them says `local`. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/watch/informer.h"
#include "lib/kube/watch/write_barrier.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "operator/federation/cluster_finding.h"
#include "operator/federation/cluster_object.h"
#include "operator/federation/kubeconfigs.h"
#include "operator/federation/member_connection.h"
#include "operator/federation/token_renewal.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::federation {

struct RegistryOptions {
  std::string ns;                         // of the operator: where the Secrets are
  AccessProviders access_providers = {};  // for ClusterProfiles; empty: none is used
  std::string local_name = "local";       // of the hub where no FusionCluster names it
  std::string hub_uid = {};               // ReadClusterUid() of the hub
  // A client from the text of a kubeconfig. InvalidArgument when it must not be used.
  std::function<absl::StatusOr<std::unique_ptr<kube::ApiClient>>(const std::string& kubeconfig, const kubeapi::FusionClusterSpec& spec)>
      connect;
  const cache::Member* hub = nullptr;                 // for what the hub has, where a FusionCluster names it; null: that is not reported
  absl::Duration connect_timeout = absl::Seconds(2);  // with a new connection, until the status says that there is none
  // A connection that is younger has had no chance yet: what the status says of the time before does not make it lost.
  absl::Duration loss_timeout = cache::ClusterCache::kLossTimeout;
  // What in that member (or in the hub, by the name of `hub`) has the name of something of ours and is somebody else's; empty: nothing.
  std::function<std::string(const std::string& cluster)> conflict = [](const std::string&) { return ""; };
  // A member counts as lost from now on, or no more: every job wants a look. Does not block.
  std::function<void()> changed_for_all = [] {};
  // The status of a FusionCluster was written.
  std::function<void()> status_written = [] {};
  // A cluster is a member no more: nothing is known of it from now on. Does not block.
  std::function<void(const std::string& cluster)> removed = [](const auto&) {};
  // Whether members are listed. They are connected and asked who they are before: that is the way there and back a few times, lists are
  // work that would hold up the hub's own. Once it has become true, ResyncAll() makes it known at once.
  std::function<bool()> may_list = [] { return true; };
  // Whether this process writes what it finds into the FusionClusters: a standby connects them and says nothing.
  std::function<bool()> may_write_status = [] { return true; };
  // What has happened to a FusionCluster, for people. Does not block.
  std::function<void(const kube::ObjectMeta& cluster, const lifecycle::EventRecord& note)> record = [](const auto&, const auto&) {};
};

class ClusterRegistry : public cache::Members {
 public:
  static constexpr absl::Duration kResyncPeriod = absl::Seconds(15);
  static constexpr absl::Duration kReconnectPeriod = absl::Seconds(2);
  static constexpr absl::Duration kConnectionCheckPeriod = absl::Seconds(1);  // sends no request
  static constexpr absl::Duration kNewConnectionPeriod = absl::Milliseconds(100);
  // What nodes have taken changes all the time: in a status it is as old as this at most, and no newer than need be. How many executors
  // there are is reported at each look.
  static constexpr absl::Duration kSummaryEvery = absl::Minutes(1);

  // All must outlive it.
  ClusterRegistry(RegistryOptions options, kube::ApiClient& hub, MemberContext context);
  ~ClusterRegistry() override;

  void Start();
  bool WaitForSync(absl::Duration timeout) { return clusters_.WaitForSync(timeout); }
  // All members at once: within a few seconds, however many hang.
  void Stop();

  // Brings one FusionCluster's connection and status up to date; Start() has it called for each.
  kube::ReconcileResult Reconcile(const std::string& name, std::stop_token stop);
  // Asks for a look at each FusionCluster; does not block.
  void ResyncAll();
  void Enqueue(const std::string& cluster, const kube::ObjectKey& job, bool urgent);

  std::vector<std::shared_ptr<cache::Member>> Remote() const override;
  std::optional<std::string> LocalName() const override;
  std::map<std::string, absl::Duration> Connecting() const override;
  bool Lost(const std::string& cluster) const override;
  void ForEachCluster(absl::FunctionRef<void(const cache::ClusterFacts&)> look) const override;
  // Of every FusionCluster, by name.
  std::map<std::string, cache::ConnectionState> Connections() const;

 private:
  // What a connection is made of: with another, another one is made.
  struct ConnectionParams {
    std::string kubeconfig;
    int64_t qps = 0, burst = 0, max_concurrent_requests = 0;
    bool operator==(const ConnectionParams&) const = default;
  };
  struct Connected {
    ConnectionParams params;
    std::shared_ptr<MemberConnection> connection;
    std::optional<bool> connected = {};  // as the last look found it
    bool ever = false;                   // a look has found it so
  };

  ClusterFinding Connect(const ClusterObject& object, std::stop_token stop);
  // With the connection that there is: whether it may be used, and whether it can.
  ClusterFinding Look(const ClusterObject& object, const std::shared_ptr<MemberConnection>& connection);
  // `uid`: of the cluster that is behind it now.
  ClusterIdentity Identify(const ClusterObject& object, std::string uid) const;
  // On a worker of the member.
  kube::ReconcileResult RenewToken(cache::Member& member, const std::stop_token& stop);
  MemberContext WithRenewal(MemberContext context);
  // What is to be done about a finding, and when it is to be looked at again.
  kube::ReconcileResult Conclude(const ClusterObject& object, const ClusterFinding& finding, std::stop_token stop);
  absl::Status Report(const ClusterObject& object, const ClusterFinding& finding, std::stop_token stop);
  // The connection is new and may be there in a moment: what the status says of the time before holds until then.
  bool MayComeBack(const kubeapi::FusionCluster& cluster, const ClusterFinding& finding) const;
  // Judges by the time that the cluster's status says, so that a restart of the operator does not restart the count.
  void UpdateLost(const ClusterObject& object, const ClusterFinding& finding);
  // The hub's own; on its API server, if that is due.
  std::shared_ptr<const MemberFacts> HubFacts(std::stop_token stop);
  // What the cluster has, as far as it is time to say it.
  void Describe(const kubeapi::FusionCluster& cluster, const ClusterFinding& finding, kubeapi::FusionClusterStatus& status);
  // `again`: when it is looked at next, if that is known.
  void ReportAttempts(const kubeapi::FusionCluster& cluster, const ClusterFinding& finding, absl::Duration again) const;
  // One whose FusionCluster is gone: when it is to be looked at again.
  kube::ReconcileResult Leave(const std::string& name);
  void Drop(const std::string& name);
  // Queues those whose connection is not what the last look found.
  void CheckConnections();
  std::shared_ptr<MemberConnection> ConnectionOf(const std::string& name) const;

  const RegistryOptions options_;
  kube::ApiClient& hub_;
  const MemberContext context_;
  kube::WorkQueue queue_;
  kube::Informer clusters_;
  kube::WriteBarrier writes_;
  Kubeconfigs kubeconfigs_;
  TokenRenewal tokens_;
  std::unique_ptr<kube::Controller> controller_;
  MemberCheck hub_check_;
  absl::Duration started_at_;    // since Start
  base::Mutex hub_check_mutex_;  // held while the hub is asked
  absl::Duration hub_checked_at_ ABSL_GUARDED_BY(hub_check_mutex_) = -absl::InfiniteDuration();
  mutable base::Mutex mutex_;
  std::set<std::string> looked_at_ ABSL_GUARDED_BY(mutex_);  // names of those with a connection, or known to have none
  std::map<std::string, Connected> connections_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Duration> lost_timeouts_ ABSL_GUARDED_BY(mutex_);  // workerLostTimeoutSeconds of those that are registered
  // Those that were, and until when they do not count as lost, by the monotonic clock.
  std::map<std::string, absl::Duration> gone_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> lost_ ABSL_GUARDED_BY(mutex_);  // registered, without a connection
  struct Published {
    absl::Duration summary_at = -absl::InfiniteDuration();
    std::optional<std::string> version;
    std::optional<kubeapi::ResourceSummary> summary;
    int64_t executors = 0;
  };
  std::map<std::string, Published> published_ ABSL_GUARDED_BY(mutex_);
  std::jthread connection_monitor_;  // looks at connections
};

}  // namespace fusionllm::op::federation
