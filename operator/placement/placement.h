// Where the executors of a job go: how many in which cluster, and which of them are spares. A pure function.
//
// Narrowed by spec.placement (clusters, clusterSelector, device), spec.data.clusters and what there is room for. Executors go to the
// clusters in turn (spread: Even), fill one after the other (Packed), or are where a plan wants them (Fastest, Auto: ranking.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/job/fusion_job.h"
#include "lib/kube/api/resource_list.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::placement {

// One cluster, as one job finds it.
struct ClusterCandidate {
  std::string name;
  std::map<std::string, std::string> labels;
  bool named = false;           // the job's status names it already, and will
  std::string closed;           // why the job may have no executor there; empty: it may
  std::optional<int64_t> room;  // for how many executors of the job; absent: not known, or made when it is asked for
  int64_t devices = 0;          // executors that it has for a job that names no number
  std::string shortage;         // why there is no more room
  // The same by the kind of accelerator, as nodes' labels call it, "" for none: for how many executors, or that there are such; and what
  // each executor asks for.
  std::map<std::string, int64_t> products;
  kube::ResourceList each;
};

// How many executors the best plan known has in a cluster.
struct RankedCluster {
  std::string name;
  int64_t executors = 0;
  bool operator==(const RankedCluster&) const = default;
};
using Ranking = std::vector<RankedCluster>;  // the most first; empty: unknown

struct Placement {
  std::vector<manifests::ExecutorSlot> slots;  // those that train, cluster by cluster, then spares; empty: it cannot be
  std::string problem;                         // why not
  int64_t wanted = 0;                          // executors that train, if there were room
  std::string shortage;                        // what is short where, with fewer slots than wanted
  bool pending = false;                        // ask again in a moment: the scheduler is being asked
  bool follows_plan = false;                   // where there was a choice, it follows a plan
  std::string hint_reason;                     // CamelCase; empty: there was no query
  std::string hint;                            // what came of it, as a sentence
};

// What a job leaves open: among these clusters, within these bounds, its executors can be divided in more than one way.
struct SearchSpace {
  struct Cluster {
    const ClusterCandidate* candidate = nullptr;
    int64_t min_count = 0, max_count = 0;
  };
  int64_t wanted = 0;
  std::vector<Cluster> clusters;  // none: nothing
};

// The number of executors that the job names; nothing: as many as there are.
std::optional<int64_t> RequestedExecutors(const job::Executors& executors);

// The fewest executors with which an attempt may begin: executors.min, and for a first one no fewer than spec.strategy.stages times
// spec.strategy.replicas, as far as the job itself allows so many: with fewer the planner refuses it, for good, as it does where devices of
// the job are excluded. A later one has its strategy fitted to what there is (fitted_strategy.h).
int64_t MinExecutorsToStart(const job::FusionJob& job, int64_t attempt);

// `candidates`: all clusters that there are, the best first; they must outlive what points to them.
SearchSpace SearchSpaceOf(const job::FusionJob& job, const std::vector<ClusterCandidate>& candidates);
// `ranking` counts where the job leaves a choice: first as many as it says in each cluster, then more in the same order. `more_clusters`:
// of how many beside those that are `named` it may have any; nothing: of all.
Placement Place(const job::FusionJob& job, const std::vector<ClusterCandidate>& candidates, const Ranking& ranking = {},
                std::optional<int64_t> more_clusters = std::nullopt);

}  // namespace fusionllm::op::placement
