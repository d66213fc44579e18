// Parameter updates and learning-rate schedules, with the arithmetic of PyTorch's torch.optim.AdamW and SGD (single-tensor form, fp32).
//
// Pure functions over arrays; elementwise, so cutting a model into stages cannot change a bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::runtime {

struct OptimizerConfig {
  enum class Kind { kAdamW, kSgd };
  Kind kind = Kind::kAdamW;
  double learning_rate = 1e-3;
  double weight_decay = 0;  // on parameters of two or more dimensions; decoupled for AdamW, coupled for SGD
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0;
  bool nesterov = false;
};

// Names of the state tensors kept for each parameter, the suffixes of their keys in checkpoints: {"exp_avg", "exp_avg_sq"},
// {"momentum_buffer"} or none.
std::vector<std::string> StateNames(const OptimizerConfig& config);

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

// One step of one parameter. `state` has one span for each name of StateNames. `gradient_scale` multiplies the gradient first (clipping).
// `step` counts from 1 (bias correction; the first SGD step copies the gradient into the momentum buffer, as torch does).
void UpdateParameter(const OptimizerConfig& config, double learning_rate, bool decay, int64_t step, float gradient_scale,
                     std::span<const float> gradient, std::span<float> parameter, std::span<const std::span<float>> state);

// Sum of squares in double, in an order that depends on the length alone.
double SumOfSquares(std::span<const float> values);

// The factor for gradients of global norm `norm`: min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when limit is 0.
float ClipScale(double norm, double limit);

}  // namespace fusionllm::runtime
