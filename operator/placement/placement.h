// Where the executors of a job go: how many in which cluster, and which of them are spares. A pure function.
//
// Narrowed by spec.placement (clusters, clusterSelector, device), spec.data.clusters and what there is room for. Executors go to the
// clusters in turn (spread: Even) or fill one after the other (Packed).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op {

// One cluster, as one job finds it.
struct ClusterOffer {
  std::string name;
  std::map<std::string, std::string> labels;
  std::string closed;           // why the job may have no executor there; empty: it may
  std::optional<int64_t> room;  // for how many executors of the job; absent: not known, or made when it is asked for
  int64_t devices = 0;          // executors that it has for a job that names no number
  std::string shortage;         // why there is no more room
};

struct Placement {
  std::vector<ExecutorSlot> slots;  // those that train, cluster by cluster, then spares; empty: it cannot be
  std::string problem;              // why not
  int64_t wanted = 0;               // executors that train, if there were room
  std::string shortage;             // what is short where, with fewer slots than wanted
};

// The number of executors that the job names; nothing: as many as there are.
std::optional<int64_t> NamedNumber(const job::Executors& executors);

// `offers`: all clusters that there are, the best first.
Placement Place(const job::FusionJob& job, const std::vector<ClusterOffer>& offers);

}  // namespace fusionllm::op
