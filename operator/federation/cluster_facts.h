// What is said of a FusionCluster: to those who place jobs, in its status, and to people. Pure functions.
#pragma once

#include <vector>

#include "lib/kube/watch/object.h"
#include "lib/kubeapi/fusion_cluster.h"
#include "operator/cache/capacity.h"
#include "operator/cache/member.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::federation {

// Labels are those of the object, and topology.kubernetes.io/region and /zone, fusionllm.io/provider and fusionllm.io/cluster for what its
// spec and name say.
cache::ClusterFacts FactsOf(const kube::ObjectMeta& meta, const kubeapi::FusionCluster& cluster);

// Of nodes that are ready and take pods; the others are counted and no more.
kubeapi::ResourceSummary SummaryOf(const cache::ClusterCapacity& capacity);

// What people should know of the way from one status to the next.
std::vector<lifecycle::EventRecord> EventsForClusterTransition(const kubeapi::FusionClusterStatus& before,
                                                               const kubeapi::FusionClusterStatus& next);

}  // namespace fusionllm::op::federation
