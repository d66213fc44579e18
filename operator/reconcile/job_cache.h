// The FusionJobs of the hub, cached.
#pragma once

#include <memory>
#include <string>

#include "lib/kube/watch/informer.h"
#include "operator/members/cluster_cache.h"
#include "operator/reconcile/job_reconciler.h"

namespace fusionllm::op {

class JobCache : public JobSource {
 public:
  // `client`, `clock` and `metrics` (which may be null) must outlive it. `changed` is called on a thread of the cache.
  JobCache(const std::string& origin, kube::ApiClient& client, kube::Clock& clock, const kube::InformerMetrics* metrics,
           JobChanged changed);

  void Start() { jobs_.Start(); }
  void Stop() { jobs_.Stop(); }
  bool WaitForSync(absl::Duration patience) { return jobs_.WaitForSync(patience); }

  std::shared_ptr<const JobView> Find(const kube::ObjectKey& key) const override;

 private:
  kube::Informer jobs_;
};

}  // namespace fusionllm::op
