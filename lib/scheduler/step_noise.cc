#include "lib/scheduler/step_noise.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace fusionllm::scheduler {

LogNormalNoise::LogNormalNoise(const NoiseSpec& spec, int64_t step)
    : random_(spec.seed, "pipeline jitter"), step_(static_cast<uint64_t>(step)), sigma_(std::sqrt(std::log1p(spec.jitter * spec.jitter))) {}

double LogNormalNoise::Factor(TimelineSpan::Kind kind, int stage_or_link, int micro_batch) const {
  // 13 bits hold kMaxMicroBatches, 28 more any link.
  const uint64_t index =
      ((step_ * 8 + static_cast<uint64_t>(kind)) << 41) + (static_cast<uint64_t>(stage_or_link) << 13) + static_cast<uint64_t>(micro_batch);
  const auto normal = static_cast<double>(random_.Normal(index));
  return std::exp(sigma_ * normal - sigma_ * sigma_ / 2);
}

PipelineInput WithStragglers(const PipelineInput& input, const NoiseSpec& spec, int64_t step) {
  PipelineInput slowed = input;
  for (size_t i = 0; i < spec.stragglers.size(); ++i) {
    const Straggler& straggler = spec.stragglers[i];
    const base::CounterRng random(spec.seed, absl::StrCat("straggler ", i));
    if (static_cast<double>(random.Uniform(static_cast<uint64_t>(step))) >= straggler.probability) continue;
    for (size_t s = static_cast<size_t>(straggler.worker); s < slowed.stages.size(); s += static_cast<size_t>(input.workers())) {
      StageTiming& timing = slowed.stages[s];
      for (double* seconds : {&timing.forward_s, &timing.backward_s, &timing.weights_s, &timing.update_s, &timing.codec_forward_s,
                              &timing.codec_backward_s}) {
        *seconds *= straggler.factor;
      }
    }
  }
  return slowed;
}

}  // namespace fusionllm::scheduler
