// Layer norm. A warp takes a row, of which each lane keeps its elements in registers: so every tensor is read and written once, and what
// the neighbours of a layer norm in a residual network do (add, before it and after its gradient) is done on the way. Rows that are too
// wide for that, or no whole number of quads, are taken by a block that reads them again.
//
// Gradients of weight and bias come from the same reading of x and dy: each block sums a stretch of rows by column, in registers, and the
// stretches are put together in their order (strips.h).
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"
#include "lib/kernels/cuda/strips.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr double kDefaultEpsilon = 1e-5;
constexpr int kRowThreads = 128;
constexpr int kWarps = kRowThreads / 32;

// Widths up to 128 times this; a gradient keeps four numbers for each element, the forward pass one.
constexpr int kMaxQuads = 16;
constexpr int kMaxQuadsOfGradient = 8;

bool FitsWarp(int64_t width, int max_quads) { return width % 4 == 0 && width <= 128 * max_quads; }

// Calls `launch` with a constant: the fewest quads of a lane that hold a row.
template <typename Launcher>
cudaError_t WithQuads(int64_t width, Launcher launch) {
  const int64_t quads = (width + 127) / 128;
  if (quads <= 1) return launch(std::integral_constant<int, 1>());
  if (quads <= 2) return launch(std::integral_constant<int, 2>());
  if (quads <= 4) return launch(std::integral_constant<int, 4>());
  if (quads <= 6) return launch(std::integral_constant<int, 6>());
  if (quads <= 8) return launch(std::integral_constant<int, 8>());
  return launch(std::integral_constant<int, kMaxQuads>());
}

template <typename T>
struct Forward {
  const T* x;
  const T* added;  // x + added is what is normalized, and goes to `sum` unless that is null; or null
  T* sum;
  const float* weight;
  const float* bias;
  T* y;
  float* means;
  float* rstds;
  int64_t rows, width;
  float epsilon;
};

template <typename T, int kQuads>
__global__ void __launch_bounds__(kRowThreads) NormalizeRowsByWarps(Forward<T> f) {
  const int lane = threadIdx.x % 32;
  const int64_t quads = f.width / 4;
  for (int64_t row = FirstElement() / 32; row < f.rows; row += ElementStride() / 32) {
    const int64_t first = row * f.width;
    float4 x[kQuads];
    float sum = 0;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int64_t at = q * 32 + lane;
      x[q] = make_float4(0, 0, 0, 0);
      if (at >= quads) continue;
      x[q] = LoadQuad(f.x + first, at);
      if (f.added != nullptr) x[q] = AddStored<T>(x[q], LoadQuad(f.added + first, at));
      sum += (x[q].x + x[q].y) + (x[q].z + x[q].w);
    }
    const float mean = SumOverWarp(sum) / static_cast<float>(f.width);
    float squares = 0;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if (q * 32 + lane >= quads) continue;
      const float a = x[q].x - mean, b = x[q].y - mean, c = x[q].z - mean, d = x[q].w - mean;
      squares += (a * a + b * b) + (c * c + d * d);
    }
    const float rstd = 1.0f / sqrtf(SumOverWarp(squares) / static_cast<float>(f.width) + f.epsilon);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int64_t at = q * 32 + lane;
      if (at >= quads) continue;
      const float4 w = LoadQuad(f.weight, at), b = LoadQuad(f.bias, at);
      if (f.sum != nullptr) StoreQuad(f.sum + first, at, x[q]);
      StoreQuad(f.y + first, at,
                make_float4((x[q].x - mean) * rstd * w.x + b.x, (x[q].y - mean) * rstd * w.y + b.y, (x[q].z - mean) * rstd * w.z + b.z,
                            (x[q].w - mean) * rstd * w.w + b.w));
    }
    if (lane != 0) continue;
    if (f.means != nullptr) f.means[row] = mean;
    if (f.rstds != nullptr) f.rstds[row] = rstd;
  }
}

template <typename T>
struct Backward {
  const T* x;
  const T* dy;
  const float* means;
  const float* rstds;
  const float* weight;
  T* dx;           // or null
  const T* added;  // dx + added goes to `sum`; both or neither are null
  T* sum;
  float* partials;  // of each block's stretch of rows: the sums of dy * (x - mean) * rstd and of dy; or null
  int64_t rows, width;
};

// dx of one quad; adds up what goes into gradients of weight and bias.
__device__ inline float4 GradientOfQuad(float4 x, float4 dy, float4 w, float mean, float rstd, float sum, float sum_normalized,
                                        float4* products, float4* sums) {
  const float4 n = make_float4((x.x - mean) * rstd, (x.y - mean) * rstd, (x.z - mean) * rstd, (x.w - mean) * rstd);
  products->x += dy.x * n.x, products->y += dy.y * n.y, products->z += dy.z * n.z, products->w += dy.w * n.w;
  sums->x += dy.x, sums->y += dy.y, sums->z += dy.z, sums->w += dy.w;
  return make_float4((dy.x * w.x - (sum + n.x * sum_normalized)) * rstd, (dy.y * w.y - (sum + n.y * sum_normalized)) * rstd,
                     (dy.z * w.z - (sum + n.z * sum_normalized)) * rstd, (dy.w * w.w - (sum + n.w * sum_normalized)) * rstd);
}

// Puts the sums of the block's warps together, in their order, and leaves them in `out`.
template <int kQuads>
__device__ void SumWarps(const float4* own, int64_t quads, float4* shared, float* out) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int w = 0; w < kWarps; ++w) {
    __syncthreads();
    if (w != warp) continue;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int64_t at = q * 32 + lane;
      if (at >= quads) continue;
      float4 sum = own[q];
      if (w > 0) {
        const float4 before = shared[at];
        sum = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
      }
      if (w + 1 < kWarps) {
        shared[at] = sum;
      } else {
        StoreQuad(out, at, sum);
      }
    }
  }
}

template <typename T, int kQuads>
__global__ void __launch_bounds__(kRowThreads) GradientByWarps(Backward<T> b, int64_t stretches) {
  __shared__ float4 shared[32 * kQuads];
  const int lane = threadIdx.x % 32;
  const int64_t quads = b.width / 4;
  const float share = 1.0f / static_cast<float>(b.width);
  const Stretch stretch = StretchOf(blockIdx.x, stretches, b.rows);
  float4 products[kQuads], sums[kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q) products[q] = sums[q] = make_float4(0, 0, 0, 0);
  for (int64_t row = stretch.first + threadIdx.x / 32; row < stretch.last; row += kWarps) {
    const int64_t first = row * b.width;
    const float mean = b.means[row], rstd = b.rstds[row];
    float4 x[kQuads], dy[kQuads];
    float sum = 0, sum_normalized = 0;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int64_t at = q * 32 + lane;
      if (at >= quads) continue;
      x[q] = LoadQuad(b.x + first, at);
      dy[q] = LoadQuad(b.dy + first, at);
      const float4 w = LoadQuad(b.weight, at);
      const float g0 = dy[q].x * w.x, g1 = dy[q].y * w.y, g2 = dy[q].z * w.z, g3 = dy[q].w * w.w;
      sum += (g0 + g1) + (g2 + g3);
      sum_normalized += ((g0 * (x[q].x - mean) + g1 * (x[q].y - mean)) + (g2 * (x[q].z - mean) + g3 * (x[q].w - mean))) * rstd;
    }
    sum = SumOverWarp(sum) * share;
    sum_normalized = SumOverWarp(sum_normalized) * share;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int64_t at = q * 32 + lane;
      if (at >= quads) continue;
      const float4 dx = GradientOfQuad(x[q], dy[q], LoadQuad(b.weight, at), mean, rstd, sum, sum_normalized, &products[q], &sums[q]);
      // Read before anything of this place is written: the sum may lie where the addend does.
      const float4 added = b.sum == nullptr ? dx : LoadQuad(b.added + first, at);
      if (b.dx != nullptr) StoreQuad(b.dx + first, at, dx);
      if (b.sum == nullptr) continue;
      const float4 stored = make_float4(Stored<T>(dx.x), Stored<T>(dx.y), Stored<T>(dx.z), Stored<T>(dx.w));
      StoreQuad(b.sum + first, at, AddStored<T>(stored, added));
    }
  }
  if (b.partials == nullptr) return;
  float* const out = b.partials + 2 * static_cast<int64_t>(blockIdx.x) * b.width;
  SumWarps<kQuads>(products, quads, shared, out);
  SumWarps<kQuads>(sums, quads, shared, out + b.width);
}

// ---- Rows of any width: a block for each ------------------------------------------------------------------------------------------------

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

// ---- The ops ----------------------------------------------------------------------------------------------------------------------------

template <typename T>
absl::Status RunForward(Device& device, const Forward<T>& f) {
  if (f.rows == 0 || f.width == 0) return absl::OkStatus();
  const cudaError_t error = WithQuads(f.width, [&](auto quads) {
    return Launch(device.stream(), BlocksFor(f.rows * 32, kRowThreads), kRowThreads, 0, NormalizeRowsByWarps<T, quads()>, f);
  });
  return ToStatus(error, "starting a layer norm");
}

template <typename T>
class LayerNorm : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t rows = op_.in(0).rows(), width = op_.in(0).dim(-1);
    const Forward<T> f{.x = arguments.inputs[0].as<T>(),
                       .added = nullptr,
                       .sum = nullptr,
                       .weight = arguments.parameters[0].f32(),
                       .bias = arguments.parameters[1].f32(),
                       .y = arguments.outputs[0].as<T>(),
                       .means = OutputOrNull(arguments, 1),
                       .rstds = OutputOrNull(arguments, 2),
                       .rows = rows,
                       .width = width,
                       .epsilon = static_cast<float>(op_.attributes.Number("epsilon", kDefaultEpsilon))};
    if (FitsWarp(width, kMaxQuads)) return RunForward(device_, f);
    return LaunchStatus(Launch(stream(), BlocksForRows(rows), kRowThreads, 0, NormalizeRows<T>, f.x, f.weight, f.bias, f.y, f.means,
                               f.rstds, rows, width, f.epsilon));
  }
};

// Each warp of a stretch has at least some rows, and there are enough stretches for the greatest cards.
int64_t StretchesByWarps(int64_t rows) { return std::clamp<int64_t>(rows / (8 * kWarps), 1, 264); }

template <typename T>
absl::Status RunBackward(Device& device, Backward<T> b, float* dweight, float* dbias, bool add_weight, bool add_bias) {
  const int64_t stretches = StretchesByWarps(b.rows);
  if (dweight == nullptr && dbias == nullptr) b.partials = nullptr;
  const cudaError_t error = WithQuads(b.width, [&](auto quads) {
    if constexpr (quads() <= kMaxQuadsOfGradient) {
      return Launch(device.stream(), static_cast<unsigned>(stretches), kRowThreads, 0, GradientByWarps<T, quads()>, b, stretches);
    } else {
      return cudaErrorInvalidValue;  // FitsWarp
    }
  });
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(error, "starting the gradient of a layer norm"));
  if (b.partials == nullptr) return absl::OkStatus();
  return ToStatus(LaunchAddGradients(device.stream(), b.partials, stretches, b.width, dweight, dbias, add_weight, add_bias, nullptr),
                  "adding gradients of a layer norm");
}

template <typename T>
class LayerNormGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  size_t workspace_bytes() const override { return WorkspaceBytes(rows(), width()); }
  static size_t WorkspaceBytes(int64_t rows, int64_t width) {
    const int64_t stretches = FitsWarp(width, kMaxQuadsOfGradient) ? StretchesByWarps(rows) : Stretches(rows);
    return sizeof(float) * static_cast<size_t>(2 * stretches * width);
  }

  absl::Status Run(const KernelArguments& arguments) override {
    auto* const partials = reinterpret_cast<float*>(arguments.workspace.data());
    const Backward<T> b{.x = arguments.inputs[0].as<T>(),
                        .dy = arguments.inputs[1].as<T>(),
                        .means = arguments.inputs[2].f32(),
                        .rstds = arguments.inputs[3].f32(),
                        .weight = arguments.parameters[0].f32(),
                        .dx = OutputAs<T>(arguments, 0),
                        .added = nullptr,
                        .sum = nullptr,
                        .partials = partials,
                        .rows = rows(),
                        .width = width()};
    float* const dweight = OutputOrNull(arguments, 1);
    float* const dbias = OutputOrNull(arguments, 2);
    const bool add_weight = Accumulates(arguments, 1), add_bias = Accumulates(arguments, 2);
    if (FitsWarp(width(), kMaxQuadsOfGradient)) return RunBackward(device_, b, dweight, dbias, add_weight, add_bias);
    if (b.dx != nullptr) {
      FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(Launch(stream(), BlocksForRows(rows()), kRowThreads, 0, GradientOfRows<T>, b.x, b.dy, b.means,
                                                    b.rstds, b.weight, b.dx, rows(), width())));
    }
    if (dweight == nullptr && dbias == nullptr) return absl::OkStatus();
    const int64_t stretches = Stretches(rows());
    FUSIONLLM_RETURN_IF_ERROR(
        LaunchStatus(Launch(stream(), StripGrid(width(), stretches), dim3(kStrip, kRowsAtOnce), 0, SumGradients<true, T>, b.x, b.dy,
                            b.means, b.rstds, rows(), width(), stretches, partials)));
    return LaunchStatus(LaunchAddGradients(stream(), partials, stretches, width(), dweight, dbias, add_weight, add_bias, nullptr));
  }

 private:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t width() const { return op_.in(0).dim(-1); }
};

// ---- With their neighbours --------------------------------------------------------------------------------------------------------------

// sum = a + b; y = layer_norm(sum). Inputs: a, b, sum; outputs: sum, y, mean, rstd.
template <typename T>
class AddLayerNorm : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;  // op_: the layer norm
  // A row is read before it is written.
  bool CanRunInPlace(int output, int input) const override { return output < 2 && input < 2; }
  absl::Status Run(const KernelArguments& arguments) override {
    return RunForward(device_, Forward<T>{.x = arguments.inputs[0].as<T>(),
                                          .added = arguments.inputs[1].as<T>(),
                                          .sum = OutputAs<T>(arguments, 0),
                                          .weight = arguments.parameters[0].f32(),
                                          .bias = arguments.parameters[1].f32(),
                                          .y = arguments.outputs[1].as<T>(),
                                          .means = OutputOrNull(arguments, 2),
                                          .rstds = OutputOrNull(arguments, 3),
                                          .rows = op_.in(0).rows(),
                                          .width = op_.in(0).dim(-1),
                                          .epsilon = static_cast<float>(op_.attributes.Number("epsilon", kDefaultEpsilon))});
  }
};

// dx = layer_norm_grad(x, dy, mean, rstd); sum = dx + other. Inputs: x, dy, mean, rstd, then dx and other in the order of the sum; outputs:
// dx, dweight, dbias, sum.
template <typename T>
class LayerNormGradAdd : public DeviceKernel {
 public:
  LayerNormGradAdd(PreparedOp op, Device& device, int other) : DeviceKernel(std::move(op), device), other_(other) {}
  size_t workspace_bytes() const override { return LayerNormGrad<T>::WorkspaceBytes(op_.in(0).rows(), op_.in(0).dim(-1)); }
  // An element is read by the lane that writes it, and a row as a whole before.
  bool CanRunInPlace(int output, int input) const override { return output == 3 && input < 2; }
  absl::Status Run(const KernelArguments& arguments) override {
    const Backward<T> b{.x = arguments.inputs[0].as<T>(),
                        .dy = arguments.inputs[1].as<T>(),
                        .means = arguments.inputs[2].f32(),
                        .rstds = arguments.inputs[3].f32(),
                        .weight = arguments.parameters[0].f32(),
                        .dx = OutputAs<T>(arguments, 0),
                        .added = arguments.inputs[other_].as<T>(),
                        .sum = arguments.outputs[3].as<T>(),
                        .partials = reinterpret_cast<float*>(arguments.workspace.data()),
                        .rows = op_.in(0).rows(),
                        .width = op_.in(0).dim(-1)};
    return RunBackward(device_, b, OutputOrNull(arguments, 1), OutputOrNull(arguments, 2), Accumulates(arguments, 1),
                       Accumulates(arguments, 2));
  }

 private:
  const int other_;
};

KernelOrError FuseAddLayerNorm(PreparedFusedOps row, Device& device) {
  const PreparedOp& add = row[0].op;
  PreparedOp& norm = row[1].op;
  if (!OfOneType(norm, 1, add) || !FitsWarp(norm.in(0).dim(-1), kMaxQuads)) return nullptr;
  if (norm.inputs[0].dtype == tensor::DType::kF32) return Make<AddLayerNorm<float>>(std::move(norm), device);
  return Make<AddLayerNorm<Bf16>>(std::move(norm), device);
}

KernelOrError FuseLayerNormGradAdd(PreparedFusedOps row, Device& device) {
  PreparedOp& grad = row[0].op;
  const auto& [add, through, wanted] = row[1];
  if (!OfOneType(grad, 2, add) || !FitsWarp(grad.in(0).dim(-1), kMaxQuadsOfGradient)) return nullptr;
  const int other = static_cast<int>(grad.inputs.size()) + 1 - through;
  if (grad.inputs[0].dtype == tensor::DType::kF32) return std::make_unique<LayerNormGradAdd<float>>(std::move(grad), device, other);
  return std::make_unique<LayerNormGradAdd<Bf16>>(std::move(grad), device, other);
}

}  // namespace

std::span<const Entry> LayerNormKernels() {
  static constexpr Entry kEntries[] = {OnBothTypes<LayerNorm>(OpKind::kLayerNorm, "b", "bff"),
                                       OnBothTypes<LayerNormGrad>(OpKind::kLayerNormGrad, "bbff", "bff")};
  return kEntries;
}

std::span<const FusedEntry> LayerNormFusions() {
  static constexpr FusedEntry kEntries[] = {{{OpKind::kAdd, OpKind::kLayerNorm}, FuseAddLayerNorm},
                                            {{OpKind::kLayerNormGrad, OpKind::kAdd}, FuseLayerNormGradAdd}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
