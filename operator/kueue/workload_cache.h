// The Workloads that the operator has made, cached, in the namespaces whose jobs wait in queues.
//
// Nothing is asked of a server before a job with a queue is there: most hubs have no Kueue. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"
#include "lib/kube/clock.h"
#include "lib/kube/watch/informer.h"
#include "lib/kube/watch/write_barrier.h"
#include "operator/cache/cluster_cache.h"
#include "operator/kueue/workload_source.h"

namespace fusionllm::op::kueue {

class WorkloadCache : public WorkloadSource {
 public:
  // `client`, `clock` and `metrics` (which may be null) must outlive it. `changed` is called on a thread of the cache, with the job that
  // owns a Workload. `namespaces`: the only ones that may be listed, a watch for each; empty: all, by one watch.
  WorkloadCache(const std::vector<std::string>& namespaces, kube::ApiClient& client, kube::Clock& clock,
                const kube::InformerMetrics* metrics, cache::JobChanged changed);

  WorkloadAccess Access(const std::string& ns) override;
  std::shared_ptr<const nlohmann::json> Find(const kube::ObjectKey& key) const override;
  void Wrote(const kube::ObjectKey& key, const std::string& resource_version) override;
  void Deleted(const kube::ObjectKey& key, const std::string& uid) override;
  bool SeenWrites(const kube::ObjectKey& key) override;
  void Stop();

 private:
  struct Part {
    Part(kube::ApiClient& client, kube::Clock& clock, const kube::InformerMetrics* metrics, kube::Informer::Options options)
        : workloads(client, clock, metrics, std::move(options)), writes(workloads, clock) {}
    kube::Informer workloads;
    kube::WriteBarrier writes;
  };
  // Null: not begun.
  Part* Of(const std::string& ns) const;
  Part* Begin(const std::string& ns);
  // Whether the server serves them, by its discovery, which every account may ask.
  WorkloadAccess Discover();

  const std::set<std::string> namespaces_;
  kube::ApiClient& client_;
  kube::Clock& clock_;
  const kube::InformerMetrics* const metrics_;
  const cache::JobChanged changed_;
  mutable base::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration missing_until_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();  // by clock_.Monotonic(): not asked again before
  std::map<std::string, std::unique_ptr<Part>> parts_ ABSL_GUARDED_BY(mutex_);   // by namespace; one of "": all
};

}  // namespace fusionllm::op::kueue
