// What work queues tell, under the names that dashboards of Kubernetes controllers know (workqueue_*). One for a process; queues are
// apart by their name. Thread-safe; must outlive its queues, and its registry must outlive it.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/metrics/registry.h"

namespace fusionllm::kube {

class WorkQueue;

class QueueMetrics {
 public:
  explicit QueueMetrics(metrics::Registry& registry);

  struct Unfinished {
    absl::Duration together, longest;
  };

  // A queue whose unfinished work is asked for when metrics are read, until it leaves.
  void Enter(const WorkQueue* queue);
  void Leave(const WorkQueue* queue);
  // Of each queue that is there now, by its name.
  std::map<std::string, Unfinished> UnfinishedWork() const;

  void Added(const std::string& queue) const;
  void Retried(const std::string& queue) const;
  void Depth(const std::string& queue, size_t depth) const;
  void Waited(const std::string& queue, absl::Duration time) const;
  void Worked(const std::string& queue, absl::Duration time) const;

 private:
  struct Queues {
    base::Mutex mutex;
    std::set<const WorkQueue*> all ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Queues> queues_ = std::make_shared<Queues>();  // shared with the registry, which may outlive this
  metrics::Gauge depth_, unfinished_, longest_;
  metrics::Counter adds_, retries_;
  metrics::Histogram waited_, worked_;
};

}  // namespace fusionllm::kube
