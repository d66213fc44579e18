#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr double kDefaultEpsilon = 1e-5;
constexpr unsigned kMostBlocks = 65535;
constexpr int kRowThreads = 128;

// ---- Layer norm: a block for each row ---------------------------------------------------------------------------------------------------

template <typename T>
__global__ void NormalizeRows(const T* x, const float* weight, const float* bias, T* y, float* means, float* rstds, int64_t rows,
                              int64_t width, float epsilon) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* in = x + row * width;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += in[i];
    const float mean = SumOverBlock(sum) / static_cast<float>(width);
    float squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) squares += (in[i] - mean) * (in[i] - mean);
    const float rstd = 1.0f / sqrtf(SumOverBlock(squares) / static_cast<float>(width) + epsilon);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) y[row * width + i] = (in[i] - mean) * rstd * weight[i] + bias[i];
    if (threadIdx.x != 0) continue;
    if (means != nullptr) means[row] = mean;
    if (rstds != nullptr) rstds[row] = rstd;
  }
}

template <typename T>
__global__ void GradientOfRows(const T* x, const T* dy, const float* means, const float* rstds, const float* weight, T* dx, int64_t rows,
                               int64_t width) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t first = row * width;
    const float mean = means[row], rstd = rstds[row];
    float sum = 0, sum_normalized = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float g = dy[first + i] * weight[i];
      sum += g;
      sum_normalized += g * (x[first + i] - mean) * rstd;
    }
    sum = SumOverBlock(sum);
    sum_normalized = SumOverBlock(sum_normalized);
    const float share = 1.0f / static_cast<float>(width);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float normalized = (x[first + i] - mean) * rstd;
      dx[first + i] = (dy[first + i] * weight[i] - (sum + normalized * sum_normalized) * share) * rstd;
    }
  }
}

// ---- Sums over rows, by column: gradients of weights and biases, statistics of batch norm
// --------------------------------------------------
//
// A block of 32 by 8 threads takes 32 columns over a stretch of rows; what the stretches found is put together in their order.

constexpr int kStrip = 32;
constexpr int kRowsAtOnce = 8;
constexpr int64_t kMostStretches = 64;

int64_t Stretches(int64_t rows) { return std::clamp<int64_t>(rows / 64, 1, kMostStretches); }
dim3 StripGrid(int64_t columns, int64_t stretches) {
  return {static_cast<unsigned>((columns + kStrip - 1) / kStrip), static_cast<unsigned>(stretches)};
}

// Every thread of a column gets the column's sum over the block's eight rows of threads.
__device__ float SumOverStrip(float value) {
  __shared__ float tile[kRowsAtOnce][kStrip];
  __syncthreads();
  tile[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kRowsAtOnce; ++i) sum += tile[i][threadIdx.x];
  return sum;
}

struct Stretch {
  int64_t first, last;
};
__device__ inline Stretch StretchOf(int64_t number, int64_t stretches, int64_t rows) {
  return {number * rows / stretches, (number + 1) * rows / stretches};
}

// Of each stretch: the sums of dy * (x - mean) * rstd and of dy. mean and rstd are those of the row (layer norm) or of the column (batch
// norm).
template <bool kByRow, typename T>
__global__ void SumGradients(const T* x, const T* dy, const float* means, const float* rstds, int64_t rows, int64_t columns,
                             int64_t stretches, float* partials) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kStrip + threadIdx.x;
  const Stretch stretch = StretchOf(blockIdx.y, stretches, rows);
  float products = 0, sum = 0;
  for (int64_t row = stretch.first + threadIdx.y; row < stretch.last && column < columns; row += kRowsAtOnce) {
    const int64_t s = kByRow ? row : column;
    const float g = dy[row * columns + column];
    products += g * (x[row * columns + column] - means[s]) * rstds[s];
    sum += g;
  }
  products = SumOverStrip(products);
  sum = SumOverStrip(sum);
  if (threadIdx.y != 0 || column >= columns) return;
  partials[(2 * blockIdx.y) * columns + column] = products;
  partials[(2 * blockIdx.y + 1) * columns + column] = sum;
}

// dweight and dbias from the stretches; either may be null. `sums`: where both are kept for the next kernel, or null.
__global__ void AddGradients(const float* partials, int64_t stretches, int64_t columns, float* dweight, float* dbias, bool add_weight,
                             bool add_bias, float* sums) {
  for (int64_t column = FirstElement(); column < columns; column += ElementStride()) {
    double products = 0, sum = 0;
    for (int64_t i = 0; i < stretches; ++i) {
      products += partials[(2 * i) * columns + column];
      sum += partials[(2 * i + 1) * columns + column];
    }
    if (sums != nullptr) {
      sums[column] = static_cast<float>(products);
      sums[columns + column] = static_cast<float>(sum);
    }
    if (dweight != nullptr) dweight[column] = static_cast<float>(products) + (add_weight ? dweight[column] : 0.0f);
    if (dbias != nullptr) dbias[column] = static_cast<float>(sum) + (add_bias ? dbias[column] : 0.0f);
  }
}

template <typename T>
class LayerNorm : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t rows = op_.in(0).rows(), width = op_.in(0).dim(-1);
    return Launched(Launch(stream(), static_cast<unsigned>(std::clamp<int64_t>(rows, 1, kMostBlocks)), kRowThreads, 0, NormalizeRows<T>,
                           arguments.inputs[0].as<T>(), arguments.parameters[0].f32(), arguments.parameters[1].f32(),
                           arguments.outputs[0].as<T>(), OutputOrNull(arguments, 1), OutputOrNull(arguments, 2), rows, width,
                           static_cast<float>(op_.attributes.Number("epsilon", kDefaultEpsilon))));
  }
};

template <typename T>
class LayerNormGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  size_t workspace_bytes() const override { return sizeof(float) * static_cast<size_t>(2 * Stretches(rows()) * width()); }
  absl::Status Run(const KernelArguments& arguments) override {
    const T* x = arguments.inputs[0].as<T>();
    const T* dy = arguments.inputs[1].as<T>();
    const float* means = arguments.inputs[2].f32();
    const float* rstds = arguments.inputs[3].f32();
    if (T* dx = OutputAs<T>(arguments, 0); dx != nullptr) {
      FUSIONLLM_RETURN_IF_ERROR(
          Launched(Launch(stream(), static_cast<unsigned>(std::clamp<int64_t>(rows(), 1, kMostBlocks)), kRowThreads, 0, GradientOfRows<T>,
                          x, dy, means, rstds, arguments.parameters[0].f32(), dx, rows(), width())));
    }
    float* dweight = OutputOrNull(arguments, 1);
    float* dbias = OutputOrNull(arguments, 2);
    if (dweight == nullptr && dbias == nullptr) return absl::OkStatus();
    auto* partials = reinterpret_cast<float*>(arguments.workspace.data());
    const int64_t stretches = Stretches(rows());
    FUSIONLLM_RETURN_IF_ERROR(Launched(Launch(stream(), StripGrid(width(), stretches), dim3(kStrip, kRowsAtOnce), 0, SumGradients<true, T>,
                                              x, dy, means, rstds, rows(), width(), stretches, partials)));
    return Launched(Launch(stream(), BlocksFor(width()), kThreads, 0, AddGradients, static_cast<const float*>(partials), stretches, width(),
                           dweight, dbias, Accumulates(arguments, 1), Accumulates(arguments, 2), static_cast<float*>(nullptr)));
  }

 private:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t width() const { return op_.in(0).dim(-1); }
};

// ---- Batch norm over NHWC: a column for each channel
// ----------------------------------------------------------------------------------------

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
    FUSIONLLM_RETURN_IF_ERROR(Launched(Launch(stream(), BlocksFor(channels()), kThreads, 0, AddGradients,
                                              static_cast<const float*>(partials), stretches, channels(), OutputOrNull(arguments, 1),
                                              OutputOrNull(arguments, 2), Accumulates(arguments, 1), Accumulates(arguments, 2), sums)));
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

std::span<const Entry> NormalizationKernels() {
  static constexpr Entry kEntries[] = {
      OnBothTypes<LayerNorm>("layer_norm", "b", "bff"), OnBothTypes<LayerNormGrad>("layer_norm_grad", "bbff", "bff"),
      OnBothTypes<BatchNorm>("batch_norm", "b", "bff"), OnBothTypes<BatchNormGrad>("batch_norm_grad", "bbff", "bff")};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
