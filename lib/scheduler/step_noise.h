// Steps that do not go as planned: passes and messages that take longer or shorter than their mean, devices that lag.
//
// Everything follows from the seed and the number of the step (lib/base/philox.h), not from the order of events: equal seeds give equal
// bytes. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/philox.h"
#include "lib/scheduler/pipeline_model.h"

namespace fusionllm::scheduler {

struct Straggler {
  int worker = 0;
  double factor = 1;       // its passes and updates take so many times as long, > 0
  double probability = 1;  // of a step in which it lags
};

struct NoiseSpec {
  double jitter = 0;  // coefficient of variation: the factors are log-normal with mean 1; 0: none
  std::vector<Straggler> stragglers;
  uint64_t seed = 0;
  bool none() const { return jitter == 0 && stragglers.empty(); }
};

// Of every pass and the time every message is on its shared links; latencies stay.
class LogNormalNoise final : public PassNoise {
 public:
  LogNormalNoise(const NoiseSpec& spec, int64_t step);
  double Factor(TimelineSpan::Kind kind, int stage_or_link, int micro_batch) const override;

 private:
  base::CounterRng random_;
  uint64_t step_ = 0;
  double sigma_ = 0;
};

// The pipeline with those stragglers that lag in this step.
PipelineInput WithStragglers(const PipelineInput& input, const NoiseSpec& spec, int64_t step);

}  // namespace fusionllm::scheduler
