// One cluster that lends devices, as the reconciler sees it: what is cached of it, and a client for writes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "lib/kube/client/api_client.h"
#include "operator/cache/capacity.h"
#include "operator/cache/owner_config_map_view.h"
#include "operator/lifecycle/observation.h"
#include "operator/lifecycle/progress.h"

namespace fusionllm::op::cache {

// The last word of a broker whose pod is gone.
struct BrokerReport {
  int64_t attempt = 0;
  lifecycle::Progress progress;
  std::string disruption;  // PodView::disruption
};

// Thread-safe. The caches trail the cluster: one who has written says so, and asks before the next decision whether it can be seen.
class Member {
 public:
  virtual ~Member() = default;
  virtual const std::string& name() const = 0;
  // Its caches are complete and its watches alive.
  virtual bool reachable() const = 0;
  // Out of reach for so long that what ran there counts as lost.
  virtual bool lost() const = 0;
  // What is there was read once: without that, pods and owner ConfigMaps that it does not tell of may be there all the same.
  virtual bool listed() const { return true; }
  virtual kube::ApiClient& client() const = 0;
  // Those alone that the job's owner ConfigMap owns, by their names and in its namespace: those who may make pods anywhere may give them
  // its labels.
  virtual std::vector<lifecycle::PodView> PodsOf(const manifests::JobIdentity& job) const = 0;
  virtual std::optional<OwnerConfigMapView> OwnerConfigMapOf(const manifests::JobIdentity& job) const = 0;
  // What the newest broker that is gone has left behind: its pod may have gone before anybody looked at it as it was at its end. Nothing:
  // none was seen to go, or its job has no owner ConfigMap any more.
  virtual std::optional<BrokerReport> LastReportOf(const manifests::JobIdentity& job) const { return std::nullopt; }
  // Of all jobs, other hubs' of the same origin with them.
  virtual std::vector<OwnerConfigMapView> OwnerConfigMaps() const = 0;
  // The server's answer to a write of a pod or an owner ConfigMap of the job.
  virtual void Wrote(const std::string& job_uid, const kube::Resource& resource, const std::string& answer) = 0;
  // Whether the caches show all that was written for the job.
  virtual bool SeenWrites(const std::string& job_uid) = 0;
  // What its nodes have; null: not known.
  virtual std::shared_ptr<const ClusterCapacity> Capacity() const = 0;
};

// What is said of the way from one cluster to another. 0: nothing.
struct LinkEstimate {
  double bytes_per_s = 0;
  double latency_s = 0;  // one way
};

// What is registered of a cluster, whether it can be reached or not.
struct ClusterFacts {
  std::string name;
  std::map<std::string, std::string> labels;          // its own, and what selectors may name besides: region, zone, provider, name
  std::string address = "";                           // where others reach its node ports; empty: as its nodes say
  bool local = false;                                 // the hub
  bool egress_only = false;                           // it cannot be dialed from outside
  bool on_demand = false;                             // nodes are made when pods wait for them
  bool leaving = false;                               // it is being removed
  std::map<std::string, LinkEstimate> links = {};     // to others, as stated
  std::map<std::string, LinkEstimate> measured = {};  // as runs have found them
  double egress_bytes_per_s = 0;                      // of all that leaves it together; 0: no limit is known
  double ingress_bytes_per_s = 0;                     // of all that enters
};

// Whether a registered cluster can be worked with now.
struct ConnectionState {
  bool connected = false;
  absl::Duration disconnected_for;  // as its status tells; zero while it is connected, or nothing else is known
};

// The clusters that lend devices now.
class Members {
 public:
  virtual ~Members() = default;
  // Those beside the hub.
  virtual std::vector<std::shared_ptr<Member>> Remote() const = 0;
  // What the hub is called as one that lends devices; nothing: it lends none.
  virtual std::optional<std::string> LocalName() const = 0;
  // Those of which nothing has been listed yet since this process began, or since they have other credentials; and for how long that has
  // been tried. What is there is not known, which is not the same as missing.
  virtual std::map<std::string, absl::Duration> Connecting() const = 0;
  // Whether a cluster that is none of Remote() counts as lost: registered, but for too long without a connection, or registered no more.
  virtual bool Lost(const std::string& cluster) const { return false; }
  // `look` gets each that is registered, the hub's own included if it lends devices; what it gets lasts as long as the call.
  virtual void ForEachCluster(absl::FunctionRef<void(const ClusterFacts&)> look) const = 0;
  // The same, to keep.
  std::vector<ClusterFacts> Clusters() const {
    std::vector<ClusterFacts> all;
    ForEachCluster([&](const ClusterFacts& facts) { all.push_back(facts); });
    return all;
  }
};

}  // namespace fusionllm::op::cache
