// What the clusters that there are provide for a job: which it may use, and for how many of its executors they have room.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/job/fusion_job.h"
#include "operator/cache/member.h"
#include "operator/manifests/run_objects.h"
#include "operator/placement/placement.h"
#include "operator/placement/reservations.h"

namespace fusionllm::op::placement {

struct CandidatesRequest {
  manifests::JobIdentity identity;
  const job::FusionJob* job = nullptr;
  const manifests::Images* images = nullptr;
  int64_t attempt = 0;  // that is to be placed
  // Clusters that the job had to leave, with why.
  std::map<std::string, std::string> avoided;
  absl::Time now;
  // Clusters that the job's status goes on naming whatever is placed: of job::kMaxClusters in all. What may be left where is known from
  // there.
  std::set<std::string> named;
  bool hub_on_demand = false;  // nodes of a hub that lends no devices are made when pods wait for them
};

// The hub first, then the others by name. `reservations` may be null.
std::vector<ClusterCandidate> Candidates(const CandidatesRequest& request, const cache::Member& hub, const cache::Members& members,
                                         Reservations* reservations);

// Why the job's broker finds no room on the hub, whether that lends devices or not, with what is short on its nodes; empty: it does, or
// unknown. `reservations` may be null.
std::string BrokerShortage(const CandidatesRequest& request, const cache::Member& hub, const cache::Members& members,
                           Reservations* reservations);

// What the job's broker asks of a node, the scheduler beside it included. InvalidArgument names the field of broker.template.
absl::StatusOr<cache::PodRequirements> BrokerRequirements(const CandidatesRequest& request);

// What a pod of the job's executors asks of a node of such hardware. InvalidArgument names the field of executors.template, or
// spec.placement.minMemory.
absl::StatusOr<cache::PodRequirements> ExecutorRequirements(const manifests::JobIdentity& identity, const job::FusionJob& job,
                                                            const manifests::Images& images, const manifests::DeviceKind& hardware);

// The hardware that spec.placement.device and minMemory name, in a cluster. FailedPrecondition: it has none, or does not tell.
absl::StatusOr<manifests::DeviceKind> HardwareIn(const cache::ClusterCapacity* capacity, const job::Placement& placement);
// The same; what the cluster's nodes have is put together only for a job that asks for hardware.
absl::StatusOr<manifests::DeviceKind> HardwareIn(const cache::Member& member, const job::Placement& placement);

// The same in the first cluster that has it, the hub before others; as none is asked for, where none has.
manifests::DeviceKind HardwareOf(const job::Placement& placement, const cache::Member& hub, const cache::Members& members);

}  // namespace fusionllm::op::placement
