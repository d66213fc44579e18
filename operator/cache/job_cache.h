// The FusionJobs of the hub, or of some of its namespaces, cached.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/kube/watch/informer.h"
#include "lib/kube/watch/write_barrier.h"
#include "operator/cache/cluster_cache.h"
#include "operator/cache/job_source.h"

namespace fusionllm::op::cache {

struct JobHub;

class JobCache : public JobSource {
 public:
  // `client`, `clock` and `metrics` (which may be null) must outlive it. `changed` is called on a thread of the cache.
  // `namespaces`: the only ones that are listed and watched, one watch for each; empty: all, by one watch. `origin`, `hub`: this hub, as of
  // JobIdentity.
  JobCache(const std::vector<std::string>& namespaces, const std::string& origin, const std::string& hub, kube::ApiClient& client,
           kube::Clock& clock, const kube::InformerMetrics* metrics, JobChanged changed);

  void Start();
  void Stop();
  bool WaitForSync(absl::Duration timeout);  // of each namespace
  // Whether jobs of this namespace are seen; of others nothing is known.
  bool Watches(const std::string& ns) const { return Of(ns) != nullptr; }

  std::shared_ptr<const JobView> Find(const kube::ObjectKey& key) const override;
  // Those that have fewer executors than they want, or none, for want of room.
  std::vector<kube::ObjectKey> JobsShortOfCapacity() const;
  std::vector<std::shared_ptr<const JobView>> All() const;
  void Wrote(const kube::ObjectKey& key, const std::string& resource_version) override;
  bool SeenWrites(const kube::ObjectKey& key) override;
  // Calls `changed` for each job, as if it had changed.
  void ResyncAll() const;
  // Compares the cache with the server, and lists again if they differ, which is logged and counted. Blocks; an error: it is not known.
  absl::Status CompareWithServer(std::stop_token stop);

 private:
  struct Part {
    Part(kube::ApiClient& client, kube::Clock& clock, const kube::InformerMetrics* metrics, kube::Informer::Options options)
        : jobs(client, clock, metrics, std::move(options)), writes(jobs, clock) {}
    kube::Informer jobs;
    kube::WriteBarrier writes;
  };
  // Null: not watched.
  Part* Of(const std::string& ns) const;
  std::vector<kube::ObjectPtr> Objects() const;

  const std::shared_ptr<JobHub> hub_;  // shared with what is cached
  const JobChanged changed_;
  std::map<std::string, std::unique_ptr<Part>> parts_;  // by namespace; one of "": all
};

}  // namespace fusionllm::op::cache
