#include "services/broker/model_memory.h"

#include <algorithm>
#include <set>

namespace fusionllm::services {
namespace {

// As kernels::StateNames counts them.
int64_t StateTensors(const job::Optimizer& optimizer) {
  if (optimizer.name == job::OptimizerName::kAdamw) return 2;
  return optimizer.momentum != 0 ? 1 : 0;
}

}  // namespace

broker::MinModelMemory MinModelMemoryOf(const opdag::Graph& forward, const job::Spec& spec) {
  const int64_t for_training = 1 + StateTensors(spec.training.optimizer);
  const auto bytes_of = [&](const opdag::Parameter& parameter) {
    const auto bytes = static_cast<int64_t>(parameter.type.bytes());
    return bytes + (parameter.trainable ? for_training * bytes : 0);
  };
  broker::MinModelMemory least;
  for (const opdag::Parameter& parameter : forward.parameters()) least.all_bytes += bytes_of(parameter);
  least.all_bytes *= std::max<int64_t>(1, spec.strategy.replicas);
  for (const opdag::Op& op : forward.ops()) {
    int64_t bytes = 0;
    for (const opdag::ParameterId id : std::set<opdag::ParameterId>(op.parameters.begin(), op.parameters.end())) {
      bytes += bytes_of(forward.parameter(id));
    }
    if (bytes <= least.largest_bytes) continue;
    least.largest_bytes = bytes;
    least.largest = op.name;
  }
  return least;
}

}  // namespace fusionllm::services
