#include "lib/runtime/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

// The loops below are compiled once for each instruction set and chosen at load time. Products and sums are never contracted (see
// cmake/Toolchain.cmake), so every version gives the same bits.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FUSIONLLM_SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FUSIONLLM_SIMD_CLONES
#endif

namespace fusionllm::runtime {
namespace {

constexpr double kPi = 3.14159265358979323846;

struct AdamFactors {
  float decay_keep, one_minus_beta1, beta2, one_minus_beta2, step_size, bias_correction2_sqrt, epsilon, gradient_scale;
};

FUSIONLLM_SIMD_CLONES
void AdamLoop(const AdamFactors f, const float* __restrict gradient, float* __restrict parameter, float* __restrict exp_avg,
              float* __restrict exp_avg_sq, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale;
    const float m = exp_avg[i] + f.one_minus_beta1 * (g - exp_avg[i]);  // torch's lerp form
    const float v = exp_avg_sq[i] * f.beta2 + f.one_minus_beta2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = std::sqrt(v) / f.bias_correction2_sqrt + f.epsilon;
    parameter[i] = parameter[i] * f.decay_keep - f.step_size * (m / denominator);
  }
}

struct SgdFactors {
  float learning_rate, weight_decay, momentum, gradient_scale;
  bool nesterov;
};

FUSIONLLM_SIMD_CLONES
void PlainSgdLoop(const SgdFactors f, const float* __restrict gradient, float* __restrict parameter, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale + f.weight_decay * parameter[i];
    parameter[i] -= f.learning_rate * g;
  }
}

FUSIONLLM_SIMD_CLONES
void MomentumSgdLoop(const SgdFactors f, bool first, const float* __restrict gradient, float* __restrict parameter,
                     float* __restrict buffer, size_t count) {
  const float keep = first ? 0.0f : f.momentum;
  const float look_ahead = f.nesterov ? f.momentum : 0.0f;
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale + f.weight_decay * parameter[i];
    const float b = (first ? 0.0f : keep * buffer[i]) + g;
    buffer[i] = b;
    const float direction = f.nesterov ? g + look_ahead * b : b;
    parameter[i] -= f.learning_rate * direction;
  }
}

constexpr size_t kLanes = 16;

FUSIONLLM_SIMD_CLONES
void SumSquaresLoop(const float* __restrict values, size_t blocks, double* __restrict lanes) {
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t l = 0; l < kLanes; ++l) {
      const double x = values[b * kLanes + l];
      lanes[l] += x * x;
    }
  }
}

}  // namespace

std::vector<std::string> StateNames(const OptimizerConfig& config) {
  if (config.kind == OptimizerConfig::Kind::kAdamW) return {"exp_avg", "exp_avg_sq"};
  if (config.momentum != 0) return {"momentum_buffer"};
  return {};
}

double LearningRateAt(const LearningRateSchedule& schedule, double base, int64_t step) {
  if (step <= schedule.warmup_steps) return base * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
  if (schedule.kind == LearningRateSchedule::Kind::kConstant) return base;
  const double span = static_cast<double>(std::max<int64_t>(1, schedule.total_steps - schedule.warmup_steps));
  const double progress = std::clamp(static_cast<double>(step - schedule.warmup_steps) / span, 0.0, 1.0);
  const double remaining = schedule.kind == LearningRateSchedule::Kind::kCosine ? 0.5 * (1 + std::cos(kPi * progress)) : 1 - progress;
  return schedule.minimum + (base - schedule.minimum) * remaining;
}

void UpdateParameter(const OptimizerConfig& config, double learning_rate, bool decay, int64_t step, float gradient_scale,
                     std::span<const float> gradient, std::span<float> parameter, std::span<const std::span<float>> state) {
  const double weight_decay = decay ? config.weight_decay : 0;
  if (config.kind == OptimizerConfig::Kind::kAdamW) {
    const double correction1 = 1 - std::pow(config.beta1, static_cast<double>(step));
    const double correction2 = 1 - std::pow(config.beta2, static_cast<double>(step));
    const AdamFactors factors = {.decay_keep = static_cast<float>(1 - learning_rate * weight_decay),
                                 .one_minus_beta1 = static_cast<float>(1 - config.beta1),
                                 .beta2 = static_cast<float>(config.beta2),
                                 .one_minus_beta2 = static_cast<float>(1 - config.beta2),
                                 .step_size = static_cast<float>(learning_rate / correction1),
                                 .bias_correction2_sqrt = static_cast<float>(std::sqrt(correction2)),
                                 .epsilon = static_cast<float>(config.epsilon),
                                 .gradient_scale = gradient_scale};
    AdamLoop(factors, gradient.data(), parameter.data(), state[0].data(), state[1].data(), parameter.size());
    return;
  }
  const SgdFactors factors = {.learning_rate = static_cast<float>(learning_rate),
                              .weight_decay = static_cast<float>(weight_decay),
                              .momentum = static_cast<float>(config.momentum),
                              .gradient_scale = gradient_scale,
                              .nesterov = config.nesterov};
  if (state.empty()) {
    PlainSgdLoop(factors, gradient.data(), parameter.data(), parameter.size());
  } else {
    MomentumSgdLoop(factors, step == 1, gradient.data(), parameter.data(), state[0].data(), parameter.size());
  }
}

double SumOfSquares(std::span<const float> values) {
  std::array<double, kLanes> lanes = {};
  const size_t blocks = values.size() / kLanes;
  SumSquaresLoop(values.data(), blocks, lanes.data());
  for (size_t i = blocks * kLanes; i < values.size(); ++i) lanes[i % kLanes] += double{values[i]} * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

float ClipScale(double norm, double limit) {
  if (limit <= 0) return 1.0f;
  return static_cast<float>(std::min(1.0, limit / (norm + 1e-6)));
}

}  // namespace fusionllm::runtime
