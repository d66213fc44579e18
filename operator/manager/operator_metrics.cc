#include "operator/manager/operator_metrics.h"

namespace fusionllm::op::manager {

OperatorMetrics::OperatorMetrics(metrics::Registry& registry)
    : rest(registry),
      informers(registry),
      queues(registry),
      controllers(registry),
      events(registry),
      leader(registry),
      connects(registry),
      orphans(registry),
      jobs(registry),
      config(registry) {}

}  // namespace fusionllm::op::manager
