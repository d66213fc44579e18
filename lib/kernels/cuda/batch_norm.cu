// Batch norm over NHWC: a column for each channel.
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"
#include "lib/kernels/cuda/strips.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr double kDefaultEpsilon = 1e-5;

enum BatchNormParameter { kWeight, kBias, kRunningMean, kRunningVariance, kBatchesTracked };

// Of each stretch: the mean and the sum of squares around it, so that no large sums are subtracted.
template <typename T>
__global__ void MeasureColumns(const T* x, int64_t rows, int64_t columns, int64_t stretches, float* partials) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kStrip + threadIdx.x;
  const Stretch stretch = StretchOf(blockIdx.y, stretches, rows);
  float sum = 0;
  for (int64_t row = stretch.first + threadIdx.y; row < stretch.last && column < columns; row += kRowsAtOnce)
    sum += x[row * columns + column];
  const int64_t size = stretch.last - stretch.first;
  const float mean = SumOverStrip(sum) / static_cast<float>(size > 0 ? size : 1);
  float squares = 0;
  for (int64_t row = stretch.first + threadIdx.y; row < stretch.last && column < columns; row += kRowsAtOnce) {
    const float difference = x[row * columns + column] - mean;
    squares += difference * difference;
  }
  squares = SumOverStrip(squares);
  if (threadIdx.y != 0 || column >= columns) return;
  partials[(2 * blockIdx.y) * columns + column] = mean;
  partials[(2 * blockIdx.y + 1) * columns + column] = squares;
}

struct BatchNormState {
  const float* weight;
  float* running_mean;
  float* running_variance;
  int64_t* batches_tracked;
};

// Mean and variance of each column from its stretches (or the running ones), what follows from them, and the running ones' update.
// Stretches are merged by Chan, Golub and LeVeque's rule (1979, equation 2.1). `center` and `factor`: what NormalizeColumns wants.
__global__ void FinishStatistics(const float* partials, int64_t stretches, int64_t rows, int64_t columns, double epsilon, double momentum,
                                 bool measured, bool update, BatchNormState state, float* means, float* rstds, float* center,
                                 float* factor) {
  if (update && FirstElement() == 0) ++*state.batches_tracked;
  for (int64_t column = FirstElement(); column < columns; column += ElementStride()) {
    double mean = state.running_mean[column], variance = state.running_variance[column];
    if (measured) {
      mean = variance = 0;
      double merged = 0;
      for (int64_t i = 0; i < stretches; ++i) {
        const Stretch stretch = StretchOf(i, stretches, rows);
        const double size = static_cast<double>(stretch.last - stretch.first), total = merged + size;
        if (size == 0) continue;
        const double delta = partials[(2 * i) * columns + column] - mean;
        mean += delta * (size / total);
        variance += partials[(2 * i + 1) * columns + column] + delta * delta * (merged * size / total);
        merged = total;
      }
      variance /= static_cast<double>(rows);
    }
    if (update) {  // as torch: by the unbiased variance
      const double unbias = rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1;
      state.running_mean[column] = static_cast<float>((1 - momentum) * state.running_mean[column] + momentum * mean);
      state.running_variance[column] = static_cast<float>((1 - momentum) * state.running_variance[column] + momentum * variance * unbias);
    }
    const double rstd = 1 / sqrt(variance + epsilon);
    center[column] = static_cast<float>(mean);
    factor[column] = static_cast<float>(rstd * state.weight[column]);
    if (means != nullptr) means[column] = static_cast<float>(mean);
    if (rstds != nullptr) rstds[column] = static_cast<float>(rstd);
  }
}

template <typename T>
__global__ void NormalizeColumns(const T* x, const float* center, const float* factor, const float* bias, T* y, int64_t count,
                                 int64_t columns) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    const int64_t c = i % columns;
    y[i] = (x[i] - center[c]) * factor[c] + bias[c];
  }
}

template <typename T>
class BatchNorm : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  size_t workspace_bytes() const override { return sizeof(float) * static_cast<size_t>((2 * Stretches(rows()) + 2) * channels()); }
  absl::Status Run(const KernelArguments& arguments) override {
    auto* partials = reinterpret_cast<float*>(arguments.workspace.data());
    const int64_t stretches = Stretches(rows());
    float* center = partials + 2 * stretches * channels();
    float* factor = center + channels();
    const T* x = arguments.inputs[0].as<T>();
    const bool measured = arguments.mode != Mode::kEvaluate;
    if (measured) {
      FUSIONLLM_RETURN_IF_ERROR(Launched(Launch(stream(), StripGrid(channels(), stretches), dim3(kStrip, kRowsAtOnce), 0, MeasureColumns<T>,
                                                x, rows(), channels(), stretches, partials)));
    }
    const BatchNormState state = {arguments.parameters[kWeight].f32(), arguments.parameters[kRunningMean].f32(),
                                  arguments.parameters[kRunningVariance].f32(), arguments.parameters[kBatchesTracked].as<int64_t>()};
    FUSIONLLM_RETURN_IF_ERROR(Launched(
        Launch(stream(), BlocksFor(channels()), kThreads, 0, FinishStatistics, static_cast<const float*>(partials), stretches, rows(),
               channels(), op_.attributes.Number("epsilon", kDefaultEpsilon), op_.attributes.Number("momentum", 0.1), measured,
               arguments.mode == Mode::kTrain, state, OutputOrNull(arguments, 1), OutputOrNull(arguments, 2), center, factor)));
    const int64_t count = op_.out(0).elements();
    return Launched(Launch(stream(), BlocksFor(count), kThreads, 0, NormalizeColumns<T>, x, static_cast<const float*>(center),
                           static_cast<const float*>(factor), static_cast<const float*>(arguments.parameters[kBias].f32()),
                           arguments.outputs[0].as<T>(), count, channels()));
  }

 private:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t channels() const { return op_.in(0).dim(-1); }
};

// dx = w rstd (dy - dbias / n - (x - mean) rstd dweight / n); `sums`: dweight, then dbias.
template <typename T>
__global__ void GradientOfColumns(const T* x, const T* dy, const float* means, const float* rstds, const float* weight, const float* sums,
                                  T* dx, int64_t rows, int64_t columns) {
  const float share = 1.0f / static_cast<float>(rows);
  for (int64_t i = FirstElement(); i < rows * columns; i += ElementStride()) {
    const int64_t c = i % columns;
    const float normalized = (x[i] - means[c]) * rstds[c];
    dx[i] = (dy[i] - (sums[columns + c] + normalized * sums[c]) * share) * rstds[c] * weight[c];
  }
}

template <typename T>
class BatchNormGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  size_t workspace_bytes() const override { return sizeof(float) * static_cast<size_t>((2 * Stretches(rows()) + 2) * channels()); }
  absl::Status Run(const KernelArguments& arguments) override {
    const T* x = arguments.inputs[0].as<T>();
    const T* dy = arguments.inputs[1].as<T>();
    const float* means = arguments.inputs[2].f32();
    const float* rstds = arguments.inputs[3].f32();
    auto* partials = reinterpret_cast<float*>(arguments.workspace.data());
    const int64_t stretches = Stretches(rows());
    float* sums = partials + 2 * stretches * channels();
    FUSIONLLM_RETURN_IF_ERROR(Launched(Launch(stream(), StripGrid(channels(), stretches), dim3(kStrip, kRowsAtOnce), 0,
                                              SumGradients<false, T>, x, dy, means, rstds, rows(), channels(), stretches, partials)));
    FUSIONLLM_RETURN_IF_ERROR(Launched(LaunchAddGradients(stream(), partials, stretches, channels(), OutputOrNull(arguments, 1),
                                                          OutputOrNull(arguments, 2), Accumulates(arguments, 1),
                                                          Accumulates(arguments, 2), sums)));
    T* dx = OutputAs<T>(arguments, 0);
    if (dx == nullptr) return absl::OkStatus();
    return Launched(Launch(stream(), BlocksFor(rows() * channels()), kThreads, 0, GradientOfColumns<T>, x, dy, means, rstds,
                           static_cast<const float*>(arguments.parameters[0].f32()), static_cast<const float*>(sums), dx, rows(),
                           channels()));
  }

 private:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t channels() const { return op_.in(0).dim(-1); }
};

}  // namespace

std::span<const Entry> BatchNormKernels() {
  static constexpr Entry kEntries[] = {OnBothTypes<BatchNorm>("batch_norm", "b", "bff"),
                                       OnBothTypes<BatchNormGrad>("batch_norm_grad", "bbff", "bff")};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
