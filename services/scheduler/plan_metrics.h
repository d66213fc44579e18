// What the scheduler tells of itself: how many plans were asked for, what became of them, how long they took. Thread-safe.
#pragma once

#include <grpcpp/support/status.h>

#include "lib/metrics/registry.h"

namespace fusionllm::services {

class PlanMetrics {
 public:
  explicit PlanMetrics(metrics::Registry& registry);

  void SearchStarted() const { in_flight_.Add(1); }
  void SearchFinished() const { in_flight_.Add(-1); }
  // A call has been answered after `seconds`.
  void CountCall(const grpc::Status& status, bool refused, double seconds) const;

 private:
  metrics::Counter plans_;
  metrics::Histogram seconds_;
  metrics::Gauge in_flight_;
};

}  // namespace fusionllm::services
