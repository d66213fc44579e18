#include <cmath>
#include <vector>

#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

constexpr double kDefaultEpsilon = 1e-5;

absl::Status LayerNorm(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t width = op.in(0).dim(-1);
  const double epsilon = op.attributes.Number("epsilon", kDefaultEpsilon);
  const float* weight = arguments.parameters[0].f32();
  const float* bias = arguments.parameters[1].f32();
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = arguments.inputs[0].f32() + row * width;
    double mean = 0;
    for (int64_t i = 0; i < width; ++i) mean += x[i];
    mean /= static_cast<double>(width);
    double variance = 0;
    for (int64_t i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const double rstd = 1 / std::sqrt(variance / static_cast<double>(width) + epsilon);
    for (int64_t i = 0; i < width; ++i) {
      arguments.outputs[0].f32()[row * width + i] = static_cast<float>((x[i] - mean) * rstd * weight[i] + bias[i]);
    }
    if (float* saved = OutputOrNull(arguments, 1); saved != nullptr) saved[row] = static_cast<float>(mean);
    if (float* saved = OutputOrNull(arguments, 2); saved != nullptr) saved[row] = static_cast<float>(rstd);
  }
  return absl::OkStatus();
}

void StoreSums(const KernelArguments& arguments, int output, const std::vector<double>& sums) {
  float* out = OutputOrNull(arguments, output);
  if (out == nullptr) return;
  for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i]) + (Accumulates(arguments, output) ? out[i] : 0.f);
}

absl::Status LayerNormGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t width = op.in(0).dim(-1);
  const float* weight = arguments.parameters[0].f32();
  float* dx = OutputOrNull(arguments, 0);
  std::vector<double> dweight(width, 0), dbias(width, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = arguments.inputs[0].f32() + row * width;
    const float* dy = arguments.inputs[1].f32() + row * width;
    const double mean = arguments.inputs[2].f32()[row];
    const double rstd = arguments.inputs[3].f32()[row];
    double sum = 0, sum_normalized = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double normalized = (x[i] - mean) * rstd;
      dweight[i] += dy[i] * normalized;
      dbias[i] += dy[i];
      sum += static_cast<double>(dy[i]) * weight[i];
      sum_normalized += static_cast<double>(dy[i]) * weight[i] * normalized;
    }
    for (int64_t i = 0; dx != nullptr && i < width; ++i) {
      const double normalized = (x[i] - mean) * rstd;
      const double centered = static_cast<double>(dy[i]) * weight[i] - (sum + normalized * sum_normalized) / static_cast<double>(width);
      dx[row * width + i] = static_cast<float>(centered * rstd);
    }
  }
  StoreSums(arguments, 1, dweight);
  StoreSums(arguments, 2, dbias);
  return absl::OkStatus();
}

enum BatchNormParameter { kWeight, kBias, kRunningMean, kRunningVariance, kBatchesTracked };

// As torch: normalisation by the biased variance, running statistics by the unbiased one; momentum weighs the new value.
void UpdateRunning(const PreparedOp& op, const KernelArguments& arguments, const std::vector<double>& mean,
                   const std::vector<double>& variance, int64_t rows) {
  const double momentum = op.attributes.Number("momentum", 0.1);
  const double unbias = rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1;
  float* running_mean = arguments.parameters[kRunningMean].f32();
  float* running_variance = arguments.parameters[kRunningVariance].f32();
  for (size_t c = 0; c < mean.size(); ++c) {
    running_mean[c] = static_cast<float>((1 - momentum) * running_mean[c] + momentum * mean[c]);
    running_variance[c] = static_cast<float>((1 - momentum) * running_variance[c] + momentum * variance[c] * unbias);
  }
  ++*arguments.parameters[kBatchesTracked].as<int64_t>();
}

absl::Status BatchNorm(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t channels = op.in(0).dim(-1);
  const float* x = arguments.inputs[0].f32();
  std::vector<double> mean(channels, 0), variance(channels, 0);
  if (arguments.mode == Mode::kEvaluate) {
    mean.assign(arguments.parameters[kRunningMean].f32(), arguments.parameters[kRunningMean].f32() + channels);
    variance.assign(arguments.parameters[kRunningVariance].f32(), arguments.parameters[kRunningVariance].f32() + channels);
  } else {
    for (int64_t i = 0; i < rows * channels; ++i) mean[i % channels] += x[i];
    for (double& m : mean) m /= static_cast<double>(rows);
    for (int64_t i = 0; i < rows * channels; ++i) variance[i % channels] += (x[i] - mean[i % channels]) * (x[i] - mean[i % channels]);
    for (double& v : variance) v /= static_cast<double>(rows);
    if (arguments.mode == Mode::kTrain) UpdateRunning(op, arguments, mean, variance, rows);
  }
  const double epsilon = op.attributes.Number("epsilon", kDefaultEpsilon);
  std::vector<double> rstd(channels);
  for (int64_t c = 0; c < channels; ++c) rstd[c] = 1 / std::sqrt(variance[c] + epsilon);
  for (int64_t i = 0; i < rows * channels; ++i) {
    const int64_t c = i % channels;
    arguments.outputs[0].f32()[i] =
        static_cast<float>((x[i] - mean[c]) * rstd[c] * arguments.parameters[kWeight].f32()[c] + arguments.parameters[kBias].f32()[c]);
  }
  StoreSums(arguments, 1, mean);
  StoreSums(arguments, 2, rstd);
  return absl::OkStatus();
}

absl::Status BatchNormGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t channels = op.in(0).dim(-1);
  const float* x = arguments.inputs[0].f32();
  const float* dy = arguments.inputs[1].f32();
  const float* mean = arguments.inputs[2].f32();
  const float* rstd = arguments.inputs[3].f32();
  std::vector<double> dweight(channels, 0), dbias(channels, 0);
  const auto normalized = [&](int64_t i) { return (static_cast<double>(x[i]) - mean[i % channels]) * rstd[i % channels]; };
  for (int64_t i = 0; i < rows * channels; ++i) {
    dweight[i % channels] += dy[i] * normalized(i);
    dbias[i % channels] += dy[i];
  }
  for (int64_t i = 0; OutputOrNull(arguments, 0) != nullptr && i < rows * channels; ++i) {
    const int64_t c = i % channels;
    const double centered = dy[i] - (dbias[c] + normalized(i) * dweight[c]) / static_cast<double>(rows);
    arguments.outputs[0].f32()[i] = static_cast<float>(centered * rstd[c] * arguments.parameters[0].f32()[c]);
  }
  StoreSums(arguments, 1, dweight);
  StoreSums(arguments, 2, dbias);
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> NormalizationKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kLayerNorm, LayerNorm},
                                       {OpKind::kLayerNormGrad, LayerNormGrad},
                                       {OpKind::kBatchNorm, BatchNorm},
                                       {OpKind::kBatchNormGrad, BatchNormGrad}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
