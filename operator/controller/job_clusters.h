// What one job has in the clusters, and where its executors meet, as far as caches tell: the part of an Observation that is seen, not
// decided. Does not block.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "operator/cache/job_view.h"
#include "operator/cache/member.h"
#include "operator/lifecycle/observation.h"

namespace fusionllm::op::controller {

class JobClusters {
 public:
  // All must outlive it. `hub` is the cluster that has the job.
  JobClusters(const cache::JobView& view, const cache::Member& hub, const cache::Members& members)
      : view_(view), hub_(hub), members_(members), local_(members.LocalName().value_or("")) {}

  // The hub as a cluster that lends devices; empty: it lends none.
  const std::string& local() const { return local_; }
  // Whether the job's status says that it may have something in this cluster.
  bool Named(const std::string& cluster) const;
  // The hub first, under local() if it lends devices; then the other members; then those that the job has used and that are no members now.
  std::vector<lifecycle::ClusterView> Look() const;
  // As far as what was prepared says it; what the status says else stays. `seen` has the clusters of Look(), and its slots.
  void FindEndpoints(lifecycle::Observation& seen) const;
  // Those into which no other can dial.
  std::set<std::string> EgressOnly() const;

 private:
  lifecycle::ClusterView LookInto(const cache::Member& member) const;
  void AddUnknown(std::vector<lifecycle::ClusterView>& clusters) const;

  const cache::JobView& view_;
  const cache::Member& hub_;
  const cache::Members& members_;
  const std::string local_;
};

}  // namespace fusionllm::op::controller
