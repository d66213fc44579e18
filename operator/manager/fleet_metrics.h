// What the operator tells of its jobs and clusters as metrics, for dashboards and alerts: how many jobs are in which state, and for each
// job its state, restarts and executors. docs/reference/metrics.md lists them.
//
// Read from the caches whenever somebody scrapes, so that a job's series go with the job, that an operator that was just started tells
// the same as the one before it, and that nothing is left of a scrape: the five series of each of 1,000 jobs would take 4 MiB. Every
// replica with caches tells; they agree but for what one of them has not heard yet.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/metrics/registry.h"
#include "operator/cache/job_view.h"
#include "operator/cache/member.h"

namespace fusionllm::op::manager {

class FleetMetrics {
 public:
  using Jobs = std::function<std::vector<std::shared_ptr<const cache::JobView>>()>;
  using Clusters = std::function<std::map<std::string, cache::ConnectionState>()>;  // by name

  // `registry` must outlive it, and may be scraped only while it lives. Both are called with each scrape, on its thread.
  FleetMetrics(metrics::Registry& registry, Jobs jobs, Clusters clusters);

 private:
  // Calls `use` for each job that is this operator's, with the state that its status tells.
  template <class Use>
  void ForEachJob(const Use& use) const;

  const Jobs read_jobs_;
  const Clusters read_clusters_;
};

}  // namespace fusionllm::op::manager
