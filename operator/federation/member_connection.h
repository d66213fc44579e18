// The connection to one member cluster: a client, caches, a queue and workers of its own, so that a member that hangs holds up no other.
//
// It first asks the member who it is, and does nothing else until it is admitted: it may be a cluster that is connected already.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "lib/base/mutex.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/lease/fenced_client.h"
#include "lib/kube/queue/controller.h"
#include "lib/kube/watch/heartbeat_client.h"
#include "operator/cache/cluster_cache.h"
#include "operator/federation/connect_metrics.h"
#include "operator/federation/member_check.h"

namespace fusionllm::op::federation {

// What a member may cost, whatever it sends: one that is hostile, or went mad, must not take the operator, and with it all others, down.
// Together they leave room, in the 256 MiB that the chart gives the operator, for one such member beside the 64 MiB of 10,000 Pods: twice
// the caches while all is listed again, and what the answers and objects being read need.
struct MemberLimits {
  size_t cache_bytes = size_t{48} << 20;  // of all caches together, each an equal part
  size_t object_bytes = size_t{1} << 20;  // of the JSON of an object in a list or watch
  size_t answer_bytes = size_t{4} << 20;  // of any other answer
  size_t list_bytes = size_t{512} << 20;  // of a list, which is read as it comes

  kube::ReflectorLimits OfEachCache() const;
};

// What all members share. Everything must outlive them.
struct MemberContext {
  std::string origin;
  kube::Clock* clock = nullptr;
  const kube::InformerMetrics* informer_metrics = nullptr;
  kube::QueueMetrics* queue_metrics = nullptr;
  kube::ControllerMetrics* controller_metrics = nullptr;
  ConnectMetrics* connect_metrics = nullptr;
  kube::Controller::Reconcile reconcile;  // for keys of members
  // A job has pods or an owner ConfigMap in a member, and they have changed: its hub's part wants a look.
  cache::JobChanged changed;
  // Whether this process may write to members, asked before each write.
  std::function<absl::Status()> may_write = [] { return absl::OkStatus(); };
  kube::HeartbeatTimes heartbeat = {};  // how soon a member that answers nothing is noticed
  // Deletes what jobs have left in a member; null: nothing does. On a worker of that member.
  std::function<kube::ReconcileResult(cache::Member& member, std::stop_token stop)> collect;
  // Renews the token by which a member is reached; null: nothing does. On a worker of that member, once it is admitted.
  std::function<kube::ReconcileResult(cache::Member& member, std::stop_token stop)> renew = {};
  // There may be more room in a member than before.
  std::function<void()> on_capacity_increase;
  MemberLimits limits = {};
  // Of jobs with a part in that cluster: what is done there is asked for in these. Null: it is not asked whether we may.
  std::function<std::set<std::string>(const std::string& cluster)> namespaces;
};

// What a member's queue is called: this and the member's name.
inline constexpr char kMemberQueue[] = "member-";

class MemberConnection : public cache::Member {
 public:
  // Whether it is still the same cluster: and soon after it was away, for then another may have taken its place.
  static constexpr absl::Duration kCheckEvery = absl::Minutes(1);
  static constexpr absl::Duration kRecheckAfter = absl::Seconds(2);

  // Starts at once. `on_checked`: the member has said, or not, who it is; on a worker of the connection, must not block.
  MemberConnection(std::string name, std::unique_ptr<kube::ApiClient> client, const MemberContext& context,
                   std::function<void()> on_checked);
  ~MemberConnection() override { Stop(); }

  // Ends its threads. Before the last reference goes: that may be held by a worker, which cannot wait for itself.
  void Stop();

  // Who the member says it is; null: it has not said so yet.
  std::shared_ptr<const MemberFacts> Facts() const { return check_.Facts(); }
  // It may be used: the caches begin. Once.
  void Admit();
  bool admitted() const { return admitted_; }
  // Asks the member again who it is; does not block.
  void CheckSoon();
  // Asks for a look at a job's part here; one that is not urgent waits for those that are.
  void Enqueue(const kube::ObjectKey& job, bool urgent);
  // Not connected, and why; OK: it is admitted, its caches are complete and its watches alive.
  absl::Status Connection() const;
  // Unauthenticated: the member refuses us, or there are no credentials for it, for a watch or when it was last asked who it is. Other
  // watches may go on. OK in all other cases.
  absl::Status Credentials() const;
  // Since it was made.
  absl::Duration Age() const { return clock_.Monotonic() - made_at_; }
  // What counts how long it has been away says that it is too long, or no more. True: that was news.
  bool SetLost(bool lost) { return lost_.exchange(lost) != lost; }

  const std::string& name() const override { return name_; }
  bool reachable() const override { return Connection().ok(); }
  bool lost() const override { return lost_ && !reachable(); }
  // Between its lists and its watches it would not be known whether it is away.
  bool listed() const override { return admitted_ && cache_.Listed() && cache_.Watched(); }
  kube::ApiClient& client() const override { return cache_.client(); }
  std::vector<lifecycle::PodView> PodsOf(const manifests::JobIdentity& job) const override { return cache_.PodsOf(job); }
  std::optional<cache::OwnerConfigMapView> OwnerConfigMapOf(const manifests::JobIdentity& job) const override {
    return cache_.OwnerConfigMapOf(job);
  }
  std::vector<cache::OwnerConfigMapView> OwnerConfigMaps() const override { return cache_.OwnerConfigMaps(); }
  void Wrote(const std::string& job_uid, const kube::Resource& resource, const std::string& answer) override {
    cache_.Wrote(job_uid, resource, answer);
  }
  bool SeenWrites(const std::string& job_uid) override { return cache_.SeenWrites(job_uid); }
  std::shared_ptr<const cache::ClusterCapacity> Capacity() const override { return cache_.Capacity(); }

 private:
  kube::ReconcileResult Check(const MemberContext& context, const std::stop_token& stop);
  // What is to be done here about no job: comparing caches, collecting what was left.
  kube::ReconcileResult RunPeriodicCleanup(const MemberContext& context, const std::stop_token& stop);

  const std::string name_;
  const std::unique_ptr<kube::ApiClient> client_;
  const std::function<void()> on_checked_;
  kube::HeartbeatClient reads_;
  kube::FencedClient writes_;
  kube::Clock& clock_;
  const absl::Duration made_at_ = clock_.Monotonic();
  kube::WorkQueue queue_;
  MemberCheck check_;
  cache::ClusterCache cache_;
  std::atomic<bool> admitted_ = false, lost_ = false;
  absl::Duration compare_at_;  // used by the one worker that keeps house
  base::Mutex stop_mutex_;
  std::unique_ptr<kube::Controller> controller_ ABSL_GUARDED_BY(stop_mutex_);  // null once stopped
};

}  // namespace fusionllm::op::federation
