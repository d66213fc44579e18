// Parameter updates with the arithmetic of PyTorch's torch.optim.AdamW and SGD (single-tensor form, fp32), and what a step needs before
// them: sums of gradients and of their squares. Elementwise, so cutting a model into stages cannot change a bit.
//
// A back end has its own OptimizerKernels where its tensors are not in this machine's memory; the functions below are those of the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace fusionllm::kernels {

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

inline constexpr int kMaxOptimizerStates = 2;

// Names of the state tensors kept for each parameter, the suffixes of their keys in checkpoints: {"exp_avg", "exp_avg_sq"},
// {"momentum_buffer"} or none.
std::vector<std::string> StateNames(const OptimizerConfig& config);

// One step, as numbers that hold for all parameters. `step` counts from 1 (bias correction; the first SGD step copies the gradient into the
// momentum buffer, as torch does). `gradient_scale` multiplies the gradient first (clipping).
struct OptimizerStep {
  double learning_rate = 0;
  int64_t step = 1;
  float gradient_scale = 1;
};

// What the arithmetic of one parameter's update needs, in the precision in which it is used.
struct AdamWFactors {
  float decay_keep, one_minus_beta1, beta2, one_minus_beta2, step_size, bias_correction2_sqrt, epsilon, gradient_scale;
};
AdamWFactors AdamWFactorsOf(const OptimizerConfig& config, const OptimizerStep& step, bool decay);

struct SgdFactors {
  float learning_rate, weight_decay, keep, look_ahead, gradient_scale;  // keep: of the momentum buffer, 0 at the first step
  bool first, nesterov;
};
SgdFactors SgdFactorsOf(const OptimizerConfig& config, const OptimizerStep& step, bool decay);

// Borrowed arrays of `count` floats each, in the back end's memory. As many states as StateNames has names.
struct ParameterUpdate {
  const float* gradient = nullptr;
  float* parameter = nullptr;
  std::array<float*, kMaxOptimizerStates> states = {};
  size_t count = 0;
  bool decay = false;
};

class OptimizerKernels {
 public:
  virtual ~OptimizerKernels() = default;
  // sum[i] = terms[0][i] + terms[1][i] + .., added in that order; `sum` may be one of the terms. All in the back end's memory.
  virtual absl::Status Add(std::span<const float* const> terms, float* sum, size_t count) = 0;
  // Sums of squares in double, each in an order that depends on its length alone. `sums` is the host's, one for each gradient; waits.
  virtual absl::Status SumsOfSquares(std::span<const std::span<const float>> gradients, std::span<double> sums) = 0;
  virtual absl::Status Update(const OptimizerConfig& config, const OptimizerStep& step, std::span<const ParameterUpdate> updates) = 0;
};

// For tensors in this machine's memory; stateless.
OptimizerKernels& HostOptimizerKernels();

// Sum of squares in double, in an order that depends on the length alone.
double SumOfSquares(std::span<const float> values);

}  // namespace fusionllm::kernels
