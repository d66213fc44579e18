// Where the parts of a run are reached, in words for the job's status: one who wonders why two executors do not meet looks there first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "operator/lifecycle/observation.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::controller {

// How a job's executors of different clusters meet.
struct EndpointInputs {
  const job::FusionJob* job = nullptr;                          // must outlive it
  const std::vector<manifests::ExecutorSlot>* slots = nullptr;  // of all clusters, as placed; must outlive it
  int64_t attempt = 0;
  std::set<std::string> egress_only;  // clusters
  std::string relay;                  // HOST:PORT of the broker, as those of other clusters dial it
};

// Where those of `cluster` are reached from other clusters, `served` being what its owner ConfigMap says of their Services by device:
// HOST:PORT of each in the order of their places, a Service's or, without any, its Pod's, or "relay HOST:PORT" where they only dial out.
// Empty: no one outside dials them, as the job is in one cluster alone or not there; or their addresses are not known yet. Nothing: some of
// their Pods have no address yet; what was said before stays. At most kMaxShortText characters: "a:1, b:1, and 7 more".
std::optional<std::string> ExecutorEndpoint(const EndpointInputs& ways, const lifecycle::ClusterView& cluster,
                                            const std::map<std::string, std::string>& served);

}  // namespace fusionllm::op::controller
