// Makes what a job's pods in a cluster need before there can be any: owner ConfigMap, credentials and, where the broker runs, its Service
// and the job itself. Blocks on the API servers; errors are theirs. Doing it twice, or after being killed half-way, gives the same.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "lib/kube/client/api_client.h"
#include "operator/cache/member.h"
#include "operator/controller/fence.h"
#include "operator/manifests/authority_cache.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::controller {

struct PrepareRequest {
  manifests::JobIdentity identity;
  const job::FusionJob* job = nullptr;
  int64_t attempt = 0;
  std::vector<manifests::ExecutorSlot> slots;  // all of the job
  int64_t wanted = 0;                          // executors that would train, if there were room
  std::string local;                           // name of the hub as a cluster that lends devices; empty: it lends none
  std::string node_address;                    // where nodes of the cluster are reached from others; empty: as they say
  bool egress_only = false;                    // the cluster cannot be dialed from outside: a Service would be of no use
  bool verify = false;                         // looks whether all that was made is still there, and makes what is not; writes nothing else
  bool begins = false;                         // the attempt does, and has no pods yet: the job's CA may be replaced
  absl::Time now;
  Fence* fence = nullptr;                            // whose epoch owner ConfigMaps carry; null: there is no election
  manifests::AuthorityCache* authorities = nullptr;  // null: none
};

struct Prepared {
  manifests::Owner owner;      // of everything in that cluster
  std::string broker_address;  // HOST:PORT for pods of that cluster
  // HOST:PORT at which other clusters reach the executors there, by device; empty: as their pods say.
  std::map<std::string, std::string> executor_addresses;
  // On the hub, when the job's document was written again: what is to be said of the difference (spec_changes.h); empty: nothing.
  std::string changed = "";
};

// On the hub, which has the job's CA and its broker. Unavailable while something has no address yet, a load balancer say, which the
// owner ConfigMap tells until then (kWaitingAnnotation), or when the owner ConfigMap was changed meanwhile; FailedPrecondition when another
// leads (leader_epoch.h).
absl::StatusOr<Prepared> PrepareHub(cache::Member& hub, const PrepareRequest& request, std::stop_token stop);
// In another cluster. The same; Unavailable, too, until the hub is prepared for this attempt. The job's CA is read there, unless it
// is cached.
absl::StatusOr<Prepared> PrepareRemote(cache::Member& member, cache::Member& hub, const PrepareRequest& request, std::stop_token stop);
// Whose Services are idle. `is_hub`: it has the broker's. `over`: the job is, and needs none any more; else those of executors in
// `request.slots` stay.
struct IdleServices {
  std::string cluster;
  bool is_hub = false;
  bool over = false;
};
// Removes what is not dialed any more: load balancers cost.
absl::Status RemoveIdleServices(cache::Member& member, const PrepareRequest& request, const IdleServices& idle, std::stop_token stop);
// Whether there are any, by what the owner ConfigMap says.
bool HasIdleServices(const cache::OwnerConfigMapView& owner_config_map, const std::vector<manifests::ExecutorSlot>& slots,
                     const IdleServices& idle);
// Whether that is why: nothing is wrong, and no event comes when there is an address.
bool AwaitsAddress(const absl::Status& status);

}  // namespace fusionllm::op::controller
