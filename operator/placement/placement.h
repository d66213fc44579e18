// Where the executors of a job go: how many in which cluster, and which of them are spares. A pure function.
#pragma once

#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op {

struct Placement {
  std::vector<ExecutorSlot> slots;  // those that train, cluster by cluster, then spares; empty: it cannot be
  std::string problem;              // why not
};

// `clusters`: those that may be used, by name, the best first. spec.placement.clusters narrows them and bounds each; without it, or above
// its minima, executors go to the clusters in turn.
Placement Place(const job::FusionJob& job, const std::vector<std::string>& clusters);

}  // namespace fusionllm::op
