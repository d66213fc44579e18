// What the operator tells of its attempts to reach member clusters: how often it has tried one that is not connected, and when it tries
// again. The connections themselves are reported by fleet_metrics.h.
#pragma once

#include <map>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/metrics/registry.h"

namespace fusionllm::op::federation {

// A cluster's series begin with Register() and end with Forget(): what workers that end late say of it after that is not heard.
// Thread-safe. `registry` must outlive it, and may be scraped only while it lives.
class ConnectMetrics {
 public:
  explicit ConnectMetrics(metrics::Registry& registry);

  // Of a cluster that is known already, nothing changes.
  void Register(const std::string& cluster);
  void Forget(const std::string& cluster);
  // It is not connected and is tried now.
  void Tried(const std::string& cluster);
  // When it is to be tried next. Reported while it is not connected.
  void NextAt(const std::string& cluster, absl::Time next);
  void Found(const std::string& cluster, bool connected);

 private:
  struct Known {
    bool connected = false;
    absl::Time next = absl::InfinitePast();  // not known
  };

  metrics::Counter attempts_;
  base::Mutex mutex_;
  std::map<std::string, Known> clusters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::op::federation
