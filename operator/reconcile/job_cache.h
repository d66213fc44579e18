// The FusionJobs of the hub, cached.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/kube/watch/informer.h"
#include "lib/kube/watch/write_barrier.h"
#include "operator/members/cluster_cache.h"
#include "operator/reconcile/job_reconciler.h"

namespace fusionllm::op {

class JobCache : public JobSource {
 public:
  // `client`, `clock` and `metrics` (which may be null) must outlive it. `changed` is called on a thread of the cache.
  // `origin`, `hub`: this hub, as of JobIdentity.
  JobCache(const std::string& origin, const std::string& hub, kube::ApiClient& client, kube::Clock& clock,
           const kube::InformerMetrics* metrics, JobChanged changed);

  void Start() { jobs_.Start(); }
  void Stop() { jobs_.Stop(); }
  bool WaitForSync(absl::Duration patience) { return jobs_.WaitForSync(patience); }

  std::shared_ptr<const JobView> Find(const kube::ObjectKey& key) const override;
  // Those that have fewer executors than they want, or none, for want of room.
  std::vector<kube::ObjectKey> ShortOfRoom() const;
  std::vector<std::shared_ptr<const JobView>> All() const;
  void Wrote(const kube::ObjectKey& key, const std::string& resource_version) override { writes_.Wrote(key, resource_version); }
  bool SeenWrites(const kube::ObjectKey& key) override { return writes_.Seen(key); }
  // Calls `changed` for each job, as if it had changed.
  void TouchAll() const;
  // Compares the cache with the server, and lists anew if they differ, which is logged and counted. Blocks; an error: it could not be told.
  absl::Status CompareWithServer(std::stop_token stop);

 private:
  const JobChanged changed_;
  kube::Informer jobs_;
  kube::WriteBarrier writes_;
};

}  // namespace fusionllm::op
