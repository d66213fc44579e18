// What one job has in the clusters, and where its executors meet, as far as caches tell: the part of an Observation that is seen, not
// decided. Does not block.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "operator/lifecycle/observation.h"
#include "operator/members/member.h"
#include "operator/reconcile/job_view.h"

namespace fusionllm::op {

class JobClusters {
 public:
  // All must outlive it. `hub` is the cluster that has the job.
  JobClusters(const JobView& view, const Member& hub, const Members& members)
      : view_(view), hub_(hub), members_(members), local_(members.LocalName().value_or("")) {}

  // The hub as a cluster that lends devices; empty: it lends none.
  const std::string& local() const { return local_; }
  // Whether the job's status says that it may have something in this cluster.
  bool Named(const std::string& cluster) const;
  // The hub first, under local() if it lends devices; then the other members; then those that the job has used and that are no members now.
  std::vector<ClusterView> Look() const;
  // As far as what was prepared says it; what the status says else stays. `seen` has the clusters of Look(), and its slots.
  void FindEndpoints(Observation& seen) const;
  // Those into which no other can dial.
  std::set<std::string> EgressOnly() const;

 private:
  ClusterView LookInto(const Member& member) const;
  void AddUnknown(std::vector<ClusterView>& clusters) const;

  const JobView& view_;
  const Member& hub_;
  const Members& members_;
  const std::string local_;
};

}  // namespace fusionllm::op
