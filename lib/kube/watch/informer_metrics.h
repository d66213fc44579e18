// What informers tell of themselves; series are distinguished by cluster and resource. One for a process; its registry must outlive it.
// Thread-safe.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "lib/metrics/registry.h"

namespace fusionllm::kube {

class InformerMetrics {
 public:
  explicit InformerMetrics(metrics::Registry& registry);

  // Of one informer, with its labels filled in. A default one tells nothing.
  class Recorder {
   public:
    Recorder() = default;
    void Listed() const;
    void WatchEnded(const std::string& reason) const;
    void Heard(absl::Time now) const;
    void Unreadable() const;
    void Diverged() const;
    void Stored(size_t objects, const std::string& resource_version) const;
    void Queued(size_t items) const;
    void Handled(absl::Duration since_received) const;
    void Leave() const;  // its gauges go

   private:
    friend class InformerMetrics;
    const InformerMetrics* all_ = nullptr;
    std::string cluster_, resource_;
  };
  Recorder Of(const std::string& cluster, const std::string& resource) const;

 private:
  metrics::Counter relists_, watch_ends_, unreadable_, divergence_;
  metrics::Gauge heard_, objects_, version_, queued_;
  metrics::Histogram latency_;
};

}  // namespace fusionllm::kube
