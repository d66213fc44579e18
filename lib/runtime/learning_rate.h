// Learning-rate schedules, and the scale of clipped gradients.
//
// Pure functions; thread-safe.
#pragma once

#include <cstdint>

namespace fusionllm::runtime {

struct LearningRateSchedule {
  enum class Kind { kConstant, kLinear, kCosine };
  Kind kind = Kind::kConstant;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double minimum = 0;
};

// Rate of step `step` (from 1): rises linearly to `base` over the warm-up (step s gets base * s / warmup), then falls to `minimum` at
// total_steps along a half cosine or a line, or stays.
double LearningRateAt(const LearningRateSchedule& schedule, double base, int64_t step);

// The factor for gradients of global norm `norm`: min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when limit is 0.
float ClipScale(double norm, double limit);

}  // namespace fusionllm::runtime
