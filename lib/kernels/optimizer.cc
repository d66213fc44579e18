#include "lib/kernels/optimizer.h"

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

namespace fusionllm::kernels {
namespace {

FUSIONLLM_SIMD_CLONES
void AdamLoop(const AdamWFactors f, const float* __restrict gradient, float* __restrict parameter, float* __restrict exp_avg,
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

FUSIONLLM_SIMD_CLONES
void PlainSgdLoop(const SgdFactors f, const float* __restrict gradient, float* __restrict parameter, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale + f.weight_decay * parameter[i];
    parameter[i] -= f.learning_rate * g;
  }
}

FUSIONLLM_SIMD_CLONES
void MomentumSgdLoop(const SgdFactors f, const float* __restrict gradient, float* __restrict parameter, float* __restrict buffer,
                     size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale + f.weight_decay * parameter[i];
    const float b = (f.first ? 0.0f : f.keep * buffer[i]) + g;
    buffer[i] = b;
    const float direction = f.nesterov ? g + f.look_ahead * b : b;
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

AdamWFactors AdamWFactorsOf(const OptimizerConfig& config, const OptimizerStep& step, bool decay) {
  const double correction1 = 1 - std::pow(config.beta1, static_cast<double>(step.step));
  const double correction2 = 1 - std::pow(config.beta2, static_cast<double>(step.step));
  return {.decay_keep = static_cast<float>(1 - step.learning_rate * (decay ? config.weight_decay : 0)),
          .one_minus_beta1 = static_cast<float>(1 - config.beta1),
          .beta2 = static_cast<float>(config.beta2),
          .one_minus_beta2 = static_cast<float>(1 - config.beta2),
          .step_size = static_cast<float>(step.learning_rate / correction1),
          .bias_correction2_sqrt = static_cast<float>(std::sqrt(correction2)),
          .epsilon = static_cast<float>(config.epsilon),
          .gradient_scale = step.gradient_scale};
}

SgdFactors SgdFactorsOf(const OptimizerConfig& config, const OptimizerStep& step, bool decay) {
  const bool first = step.step == 1;
  return {.learning_rate = static_cast<float>(step.learning_rate),
          .weight_decay = static_cast<float>(decay ? config.weight_decay : 0),
          .keep = first ? 0.0f : static_cast<float>(config.momentum),
          .look_ahead = config.nesterov ? static_cast<float>(config.momentum) : 0.0f,
          .gradient_scale = step.gradient_scale,
          .first = first,
          .nesterov = config.nesterov};
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

namespace {

class Host final : public OptimizerKernels {
 public:
  absl::Status Add(std::span<const float* const> terms, float* sum, size_t count) override {
    for (size_t i = 0; i < count; ++i) {
      float total = terms[0][i];
      for (size_t t = 1; t < terms.size(); ++t) total += terms[t][i];
      sum[i] = total;
    }
    return absl::OkStatus();
  }

  absl::Status SumsOfSquares(std::span<const std::span<const float>> gradients, std::span<double> sums) override {
    for (size_t i = 0; i < gradients.size(); ++i) sums[i] = SumOfSquares(gradients[i]);
    return absl::OkStatus();
  }

  absl::Status Update(const OptimizerConfig& config, const OptimizerStep& step, std::span<const ParameterUpdate> updates) override {
    const bool has_momentum = !StateNames(config).empty();
    for (const ParameterUpdate& u : updates) {
      if (config.kind == OptimizerConfig::Kind::kAdamW) {
        AdamLoop(AdamWFactorsOf(config, step, u.decay), u.gradient, u.parameter, u.states[0], u.states[1], u.count);
      } else if (has_momentum) {
        MomentumSgdLoop(SgdFactorsOf(config, step, u.decay), u.gradient, u.parameter, u.states[0], u.count);
      } else {
        PlainSgdLoop(SgdFactorsOf(config, step, u.decay), u.gradient, u.parameter, u.count);
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace

OptimizerKernels& HostOptimizerKernels() {
  static Host host;
  return host;
}

}  // namespace fusionllm::kernels
