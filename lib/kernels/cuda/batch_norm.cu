// Batch norm over NHWC: a column for each channel. Kernels are those of batch_norm_kernels.h, and for channels that are no whole quads
// those of strips.h and here, which know no neighbours.
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/batch_norm_kernels.h"
#include "lib/kernels/cuda/channels.h"
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

struct Measured {
  double count, mean, squares;  // squares: their sum around the mean
};
__device__ inline void Merge(const Measured& more, Measured& own) {
  const double total = own.count + more.count;
  if (total == 0) return;
  const double delta = more.mean - own.mean, share = more.count / total;
  own.mean += delta * share;
  own.squares += more.squares + delta * delta * (own.count * share);
  own.count = total;
}

// Mean and variance of each column from its stretches (or the running ones), what follows from them, and the running ones' update.
// Stretches are merged by Chan, Golub and LeVeque's rule. `origin`: what was taken from each column before it was measured, or null.
// `center` and `factor`: what normalizes.
template <typename T>
__global__ void FinishStatistics(const T* origin, const float* partials, int64_t stretches, int64_t rows, int64_t columns, double epsilon,
                                 double momentum, bool measured, bool update, BatchNormState state, float* means, float* rstds,
                                 float* center, float* factor) {
  __shared__ Measured of_thread[kJoinRows][kJoinColumns];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kJoinColumns + threadIdx.x;
  Measured own{0, 0, 0};
#pragma unroll 4
  for (int64_t i = threadIdx.y; measured && i < stretches && column < columns; i += kJoinRows) {
    const Stretch stretch = StretchOf(i, stretches, rows);
    Merge(
        {static_cast<double>(stretch.last - stretch.first), partials[(2 * i) * columns + column], partials[(2 * i + 1) * columns + column]},
        own);
  }
  of_thread[threadIdx.y][threadIdx.x] = own;
  for (unsigned left = kJoinRows / 2; left > 0; left /= 2) {
    __syncthreads();
    if (threadIdx.y >= left) continue;
    Merge(of_thread[threadIdx.y + left][threadIdx.x], own);
    of_thread[threadIdx.y][threadIdx.x] = own;
  }
  if (threadIdx.y != 0 || column >= columns) return;
  if (update && column == 0) ++*state.batches_tracked;
  double mean = state.running_mean[column], variance = state.running_variance[column];
  if (measured) {
    mean = own.mean + (origin == nullptr ? 0.0 : static_cast<double>(static_cast<float>(origin[column])));
    variance = own.squares / static_cast<double>(rows);
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

template <typename T>
__global__ void NormalizeColumns(const T* x, const float* center, const float* factor, const float* bias, T* y, int64_t count,
                                 int64_t columns) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
    const int64_t c = i % columns;
    y[i] = (x[i] - center[c]) * factor[c] + bias[c];
  }
}

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

// ---- The ops ----------------------------------------------------------------------------------------------------------------------------

// What both directions know of their tensors.
template <typename T>
class OverChannels : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  size_t workspace_bytes() const override { return sizeof(float) * static_cast<size_t>((2 * max_stretches() + 2) * channels()); }

 protected:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t channels() const { return op_.in(0).dim(-1); }
  // Of a kernel whose threads hold `rows_each` rows at once.
  int64_t stretches(int64_t rows_each) const {
    return InQuads(channels()) ? QuadStretches(rows(), channels(), rows_each) : Stretches(rows());
  }
  int64_t max_stretches() const { return stretches(std::min(kRowsMeasured, kRowsMapped)); }
  template <typename... Parameters, typename... Arguments>
  absl::Status LaunchMap(void (*kernel)(Parameters...), Arguments... arguments) const {
    return LaunchStatus(Launch(stream(), QuadGrid(rows(), channels(), kRowsMapped), QuadBlock(channels()), 0, kernel, arguments...));
  }
  template <typename... Parameters, typename... Arguments>
  absl::Status LaunchByStretches(int64_t count, void (*kernel)(Parameters...), Arguments... arguments) const {
    const dim3 grid(static_cast<unsigned>(QuadStrips(channels())), static_cast<unsigned>(count));
    return LaunchStatus(Launch(stream(), grid, QuadBlock(channels()), 0, kernel, arguments...));
  }
  template <typename... Parameters, typename... Arguments>
  absl::Status LaunchByStrips(int64_t count, void (*kernel)(Parameters...), Arguments... arguments) const {
    return LaunchStatus(Launch(stream(), StripGrid(channels(), count), dim3(kStrip, kRowsAtOnce), 0, kernel, arguments...));
  }
};

// y = batch_norm(x), alone or with what the next ops make of y. Inputs: x, then those of the next ops; outputs: y, mean, rstd, and one of
// each next op. `added`: which input the sum adds to y.
template <typename T, Next kNext = Next::kNothing>
class BatchNorm : public OverChannels<T> {
 public:
  explicit BatchNorm(PreparedOp op, Device& device, int added = -1) : OverChannels<T>(std::move(op), device), added_(added) {}
  // Of what is normalized and added an element is read by the thread that writes it, when all are measured.
  bool CanRunInPlace(int output, int input) const override { return output >= kNextOutput && (input == 0 || input == added_); }
  absl::Status Run(const KernelArguments& arguments) override {
    constexpr bool kTwo = kNext == Next::kAddRelu;
    Normalization<T> n{.x = arguments.inputs[0].template as<T>(),
                       .bias = arguments.parameters[kBias].f32(),
                       .y = OutputAs<T>(arguments, 0),
                       .added = added_ < 0 ? nullptr : arguments.inputs[added_].template as<T>(),
                       .sum = kTwo ? OutputAs<T>(arguments, kNextOutput) : nullptr,
                       .last = OutputAs<T>(arguments, kTwo ? kNextOutput + 1 : kNextOutput),
                       .rows = this->rows(),
                       .columns = this->channels()};
    FUSIONLLM_RETURN_IF_ERROR(Measure(arguments, n));
    if (InQuads(n.columns)) return this->LaunchMap(NormalizeQuads<kNext, T>, n);
    const int64_t count = n.rows * n.columns;
    return this->LaunchStatus(
        Launch(this->stream(), BlocksFor(count), kThreads, 0, NormalizeColumns<T>, n.x, n.center, n.factor, n.bias, n.y, count, n.columns));
  }

 private:
  static constexpr int kNextOutput = 3;
  // Leaves center and factor in the workspace.
  absl::Status Measure(const KernelArguments& arguments, Normalization<T>& n) const {
    auto* const center = reinterpret_cast<float*>(arguments.workspace.data());
    float* const factor = center + n.columns;
    float* const partials = factor + n.columns;
    const int64_t stretches = this->stretches(kRowsMeasured);
    const bool measured = arguments.mode != Mode::kEvaluate;
    if (measured && InQuads(n.columns)) {
      FUSIONLLM_RETURN_IF_ERROR(this->LaunchByStretches(stretches, MeasureQuads<T>, n.x, n.rows, n.columns, stretches, partials));
    } else if (measured) {
      FUSIONLLM_RETURN_IF_ERROR(this->LaunchByStrips(stretches, MeasureColumns<T>, n.x, n.rows, n.columns, stretches, partials));
    }
    n.center = center;
    n.factor = factor;
    const BatchNormState state = {arguments.parameters[kWeight].f32(), arguments.parameters[kRunningMean].f32(),
                                  arguments.parameters[kRunningVariance].f32(), arguments.parameters[kBatchesTracked].as<int64_t>()};
    return this->LaunchStatus(Launch(this->stream(), JoinBlocks(n.columns), dim3(kJoinColumns, kJoinRows), 0, FinishStatistics<T>,
                                     InQuads(n.columns) ? n.x : nullptr, partials, stretches, n.rows, n.columns,
                                     this->op_.attributes.Number("epsilon", kDefaultEpsilon), this->op_.attributes.Number("momentum", 0.1),
                                     measured, arguments.mode == Mode::kTrain, state, OutputOrNull(arguments, 1),
                                     OutputOrNull(arguments, 2), center, factor));
  }

  const int added_;
};

// dx, dweight and dbias, alone or of what comes by a sum and a relu's gradient. Inputs: (both addends,) (what the relu gave, and what comes
// to it,) x, dy, mean, rstd; outputs: (the sum,) (dy,) dx, dweight, dbias.
template <typename T, Coming kComing = Coming::kAsItIs>
class BatchNormGrad : public OverChannels<T> {
 public:
  using OverChannels<T>::OverChannels;
  // As forwards: what it comes from is read once, by the first kernel.
  bool CanRunInPlace(int output, int input) const override {
    if (output == kThrough) return input == kDy || input == kAdded || input == kRelu;
    if (output == kDx) return kRelu >= 0 && (input == kDy || input == kAdded || input == kRelu);
    return output == 0 && kAdded >= 0 && (input == kDy || input == kAdded);
  }
  absl::Status Run(const KernelArguments& arguments) override {
    auto* const sums = reinterpret_cast<float*>(arguments.workspace.data());
    Gradient<T> g{.x = arguments.inputs[kX].template as<T>(),
                  .dy = arguments.inputs[kDy].template as<T>(),
                  .added = kAdded < 0 ? nullptr : arguments.inputs[kAdded].template as<T>(),
                  .relu = kRelu < 0 ? nullptr : arguments.inputs[kRelu].template as<T>(),
                  .sum = kAdded < 0 ? nullptr : OutputAs<T>(arguments, 0),
                  .through = kThrough < 0 ? nullptr : OutputAs<T>(arguments, kThrough),
                  .means = arguments.inputs[kX + 2].f32(),
                  .rstds = arguments.inputs[kX + 3].f32(),
                  .weight = arguments.parameters[0].f32(),
                  .partials = sums + 2 * this->channels(),
                  .sums = sums,
                  .dx = OutputAs<T>(arguments, kDx),
                  .rows = this->rows(),
                  .columns = this->channels()};
    // The second kernel takes dy from where the first has put it: in the place of dx, where no other kernel wants it.
    if (kThrough >= 0 && g.through == nullptr) g.through = g.dx;
    const int64_t stretches = this->stretches(kRowsMapped);
    FUSIONLLM_RETURN_IF_ERROR(Sum(g, stretches));
    FUSIONLLM_RETURN_IF_ERROR(this->LaunchStatus(
        LaunchAddGradients(this->stream(), g.partials, stretches, g.columns, OutputOrNull(arguments, kDx + 1),
                           OutputOrNull(arguments, kDx + 2), Accumulates(arguments, kDx + 1), Accumulates(arguments, kDx + 2), g.sums)));
    if (g.dx == nullptr) return absl::OkStatus();
    if (kThrough >= 0) g.dy = g.through;
    if (InQuads(g.columns)) return this->LaunchMap(GradientOfQuads<T>, g);
    return this->LaunchStatus(Launch(this->stream(), BlocksFor(g.rows * g.columns), kThreads, 0, GradientOfColumns<T>, g.x, g.dy, g.means,
                                     g.rstds, g.weight, g.sums, g.dx, g.rows, g.columns));
  }

 private:
  static constexpr int kNone = -1;
  static constexpr bool kAdds = kComing == Coming::kAddedThroughRelu, kMasks = kComing != Coming::kAsItIs;
  // Inputs.
  static constexpr int kRelu = kAdds ? 2 : kMasks ? 0 : kNone;
  static constexpr int kX = kAdds ? 4 : kMasks ? 2 : 0;
  static constexpr int kDy = kAdds ? 0 : 1;
  static constexpr int kAdded = kAdds ? 1 : kNone;
  // Outputs.
  static constexpr int kThrough = kAdds ? 1 : kMasks ? 0 : kNone;
  static constexpr int kDx = kThrough + 1;
  absl::Status Sum(const Gradient<T>& g, int64_t stretches) const {
    if (InQuads(g.columns)) return this->LaunchByStretches(stretches, SumGradientsOfQuads<kComing, T>, g, stretches);
    return this->LaunchByStrips(stretches, SumGradients<false, T>, g.x, g.dy, g.means, g.rstds, g.rows, g.columns, stretches, g.partials);
  }
};

// ---- With their neighbours --------------------------------------------------------------------------------------------------------------

// The norm's outputs beside y are written before those of the next ops, which may lie where they did.
template <Next kNext>
KernelOrError FuseNext(PreparedFusedOps row, Device& device) {
  PreparedOp& norm = row[0].op;
  if (!InQuads(norm.in(0).dim(-1))) return nullptr;
  for (size_t i = 1; i < row.size(); ++i) {
    if (!OfOneType(norm, 1, row[i].op)) return nullptr;
  }
  constexpr bool kAdds = kNext == Next::kAdd || kNext == Next::kAddRelu;
  const int added = kAdds ? static_cast<int>(norm.inputs.size()) + 1 - row[1].through : -1;
  if (norm.inputs[0].dtype == tensor::DType::kF32) return std::make_unique<BatchNorm<float, kNext>>(std::move(norm), device, added);
  return std::make_unique<BatchNorm<Bf16, kNext>>(std::move(norm), device, added);
}

// What comes to a norm: by the relu's gradient, or by a sum and that.
template <Coming kComing>
KernelOrError FuseNormGrad(PreparedFusedOps row, Device& device) {
  PreparedOp& norm = row.back().op;
  if (!InQuads(norm.in(0).dim(-1))) return nullptr;
  for (size_t i = 0; i + 1 < row.size(); ++i) {
    if (row[i + 1].through != 1 || !OfOneType(norm, 2, row[i].op)) return nullptr;  // a gradient is the second input of both
  }
  if (norm.inputs[0].dtype == tensor::DType::kF32) return std::make_unique<BatchNormGrad<float, kComing>>(std::move(norm), device);
  return std::make_unique<BatchNormGrad<Bf16, kComing>>(std::move(norm), device);
}

}  // namespace

std::span<const Entry> BatchNormKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kBatchNorm, Make<BatchNorm<float>>, {Make<BatchNorm<Bf16>>, "b", "bff"}},
      {OpKind::kBatchNormGrad, Make<BatchNormGrad<float>>, {Make<BatchNormGrad<Bf16>>, "bbff", "bff"}},
  };
  return kEntries;
}

std::span<const FusedEntry> BatchNormFusions() {
  static constexpr FusedEntry kEntries[] = {
      {{OpKind::kBatchNorm, OpKind::kRelu}, FuseNext<Next::kRelu>},
      {{OpKind::kBatchNorm, OpKind::kAdd}, FuseNext<Next::kAdd>},
      {{OpKind::kBatchNorm, OpKind::kAdd, OpKind::kRelu}, FuseNext<Next::kAddRelu>},
      {{OpKind::kReluGrad, OpKind::kBatchNormGrad}, FuseNormGrad<Coming::kThroughRelu>},
      {{OpKind::kAdd, OpKind::kReluGrad, OpKind::kBatchNormGrad}, FuseNormGrad<Coming::kAddedThroughRelu>},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
