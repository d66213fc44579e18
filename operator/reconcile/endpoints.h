// Where the parts of a run are reached, in words for the job's status: whoever wonders why two executors do not meet looks there first.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op {

// How a job's executors of different clusters meet.
struct Ways {
  const job::FusionJob* job = nullptr;               // must outlive it
  const std::vector<ExecutorSlot>* slots = nullptr;  // of all clusters, as placed; must outlive it
  std::set<std::string> egress_only;                 // clusters
  std::string relay;                                 // HOST:PORT of the broker, as those of other clusters dial it
};

// Where those of `cluster` are reached from other clusters, `addresses` being what its anchor says of them by device: HOST:PORT of each in
// the order of their places, "relay HOST:PORT" where they only dial out, "addresses of their Pods". Empty: nobody outside dials them, as
// the job is in one cluster alone or not there; or their addresses are not known yet. At most kMaxShortText letters.
std::string ExecutorEndpoint(const Ways& ways, const std::string& cluster, const std::map<std::string, std::string>& addresses);

}  // namespace fusionllm::op
