#include <algorithm>
#include <utility>

#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cuda/channels.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

// What residual networks have (max pools, means of whole images) is done by quads of channels (channels.h) where these are whole, and
// everything in the same order, so with the same bits, element by element where they are not.

// The extents of a window as kernels get them.
struct Window {
  int64_t batch, in_height, in_width, out_height, out_width, channels;
  int64_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width;

  static Window Of(const PreparedOp& op, const tensor::Shape& x, const tensor::Shape& y) {
    const ConvolutionShape s = PoolingShapeOf(op, x, y);
    return {s.batch,     s.in_height, s.in_width,  s.out_height, s.out_width,  s.in_channels,
            s.kernel[0], s.kernel[1], s.stride[0], s.stride[1],  s.padding[0], s.padding[1]};
  }
  __host__ __device__ int64_t inputs() const { return batch * in_height * in_width * channels; }
  __host__ __device__ int64_t outputs() const { return batch * out_height * out_width * channels; }
};

// Where element i of an NHWC image of this height and width lies.
struct Place {
  int64_t sample, row, column, channel;
};
__device__ inline Place PlaceOf(int64_t i, int64_t height, int64_t width, int64_t channels) {
  return {i / (channels * width * height), i / (channels * width) % height, i / channels % width, i % channels};
}

// A thread for each output. The first of equal elements wins, and a NaN beats everything, as in torch.
template <typename T>
__global__ void MaxOfWindows(const T* x, T* y, int32_t* index, Window w) {
  for (int64_t i = FirstElement(); i < w.outputs(); i += ElementStride()) {
    const Place p = PlaceOf(i, w.out_height, w.out_width, w.channels);
    float best = -INFINITY;
    int32_t best_index = -1;
    for (int64_t kh = 0; kh < w.kernel_height; ++kh) {
      for (int64_t kw = 0; kw < w.kernel_width; ++kw) {
        const int64_t h = p.row * w.stride_height - w.padding_height + kh, c = p.column * w.stride_width - w.padding_width + kw;
        if (h < 0 || h >= w.in_height || c < 0 || c >= w.in_width) continue;
        const float value = x[((p.sample * w.in_height + h) * w.in_width + c) * w.channels + p.channel];
        if (best_index < 0 || value > best || isnan(value)) {
          best = value;
          best_index = static_cast<int32_t>(h * w.in_width + c);
        }
      }
    }
    y[i] = best;
    if (index != nullptr) index[i] = best_index;
  }
}

// The windows, of one axis, that cover `place`: rows or columns of the output from first to last.
struct Cover {
  int64_t first, last;
};
template <typename Int>  // what the divisions are made in
__device__ inline Cover CoverOf(Int place, Int kernel, Int stride, Int padding, Int extent) {
  const Int low = place + padding - kernel + 1;
  const Int first = low <= 0 ? 0 : (low + stride - 1) / stride;
  const Int last = (place + padding) / stride;
  return {first, last < extent ? last : extent - 1};
}

// A thread for each input: what the windows that cover it hand back, in their order.
template <typename T>
__global__ void GradientOfMax(const T* dy, const int32_t* index, T* dx, Window w) {
  for (int64_t i = FirstElement(); i < w.inputs(); i += ElementStride()) {
    const Place p = PlaceOf(i, w.in_height, w.in_width, w.channels);
    const Cover rows = CoverOf(p.row, w.kernel_height, w.stride_height, w.padding_height, w.out_height);
    const Cover columns = CoverOf(p.column, w.kernel_width, w.stride_width, w.padding_width, w.out_width);
    const auto own = static_cast<int32_t>(p.row * w.in_width + p.column);
    float sum = 0;
    for (int64_t row = rows.first; row <= rows.last; ++row) {
      for (int64_t column = columns.first; column <= columns.last; ++column) {
        const int64_t o = ((p.sample * w.out_height + row) * w.out_width + column) * w.channels + p.channel;
        if (index[o] == own) sum += dy[o];
      }
    }
    dx[i] = sum;
  }
}

// ---- By quads ---------------------------------------------------------------------------------------------------------------------------

// A thread for a quad of a place of an image: across a block quads, down it columns of the image; the grid has blocks of columns, rows and
// samples.

dim3 ImageGrid(int64_t batch, int64_t height, int64_t width, int64_t channels) {
  const int64_t down = QuadBlock(channels).y;
  return {static_cast<unsigned>((width + down - 1) / down), static_cast<unsigned>(std::min<int64_t>(height, kMaxBlocks)),
          static_cast<unsigned>(std::min<int64_t>(batch, kMaxBlocks))};
}

// Calls `visit` with each sample, row, column and quad of this thread.
template <typename Visit>
__device__ inline void ForEachQuad(int64_t batch, int64_t height, int64_t width, int64_t channels, Visit visit) {
  const int column = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y), quads = static_cast<int>(channels / 4);
  if (column >= width) return;
  for (int64_t sample = blockIdx.z; sample < batch; sample += gridDim.z) {
    for (int row = static_cast<int>(blockIdx.y); row < height; row += static_cast<int>(gridDim.y)) {
      for (int quad = static_cast<int>(threadIdx.x); quad < quads; quad += static_cast<int>(blockDim.x)) visit(sample, row, column, quad);
    }
  }
}

// Of one of a window's elements: the first of equal ones wins, and a NaN beats everything.
__device__ inline void Better(float value, int32_t place, float& best, int32_t& best_place) {
  const bool better = best_place < 0 || value > best || isnan(value);
  best = better ? value : best;
  best_place = better ? place : best_place;
}

template <typename T>
__global__ void __launch_bounds__(kQuadThreads, 4) MaxOfQuads(const T* x, T* y, int32_t* index, Window w) {
  const int in_height = static_cast<int>(w.in_height), in_width = static_cast<int>(w.in_width), quads = static_cast<int>(w.channels / 4);
  ForEachQuad(w.batch, w.out_height, w.out_width, w.channels, [&](int64_t sample, int row, int column, int quad) {
    float4 best = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    Quad<int32_t> places{-1, -1, -1, -1};
    const int top = row * static_cast<int>(w.stride_height) - static_cast<int>(w.padding_height);
    const int left = column * static_cast<int>(w.stride_width) - static_cast<int>(w.padding_width);
    const int bottom = std::min(top + static_cast<int>(w.kernel_height), in_height),
              right = std::min(left + static_cast<int>(w.kernel_width), in_width);
    for (int h = std::max(top, 0); h < bottom; ++h) {
#pragma unroll 3
      for (int c = std::max(left, 0); c < right; ++c) {
        const int place = h * in_width + c;
        const float4 v = LoadQuad(x, (sample * in_height * in_width + place) * quads + quad);
        Better(v.x, place, best.x, places.x);
        Better(v.y, place, best.y, places.y);
        Better(v.z, place, best.z, places.z);
        Better(v.w, place, best.w, places.w);
      }
    }
    const int64_t at = ((sample * w.out_height + row) * w.out_width + column) * quads + quad;
    StoreQuad(y, at, best);
    if (index != nullptr) reinterpret_cast<Quad<int32_t>*>(index)[at] = places;
  });
}

template <typename T>
__global__ void __launch_bounds__(kQuadThreads, 4) GradientOfMaxQuads(const T* dy, const int32_t* index, T* dx, Window w) {
  const int out_width = static_cast<int>(w.out_width), quads = static_cast<int>(w.channels / 4);
  ForEachQuad(w.batch, w.in_height, w.in_width, w.channels, [&](int64_t sample, int row, int column, int quad) {
    const Cover rows = CoverOf(row, static_cast<int>(w.kernel_height), static_cast<int>(w.stride_height),
                               static_cast<int>(w.padding_height), static_cast<int>(w.out_height));
    const Cover columns =
        CoverOf(column, static_cast<int>(w.kernel_width), static_cast<int>(w.stride_width), static_cast<int>(w.padding_width), out_width);
    const int own = row * static_cast<int>(w.in_width) + column;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int r = static_cast<int>(rows.first); r <= static_cast<int>(rows.last); ++r) {
#pragma unroll 2
      for (int c = static_cast<int>(columns.first); c <= static_cast<int>(columns.last); ++c) {
        const int64_t at = ((sample * w.out_height + r) * out_width + c) * quads + quad;
        const Quad<int32_t> places = reinterpret_cast<const Quad<int32_t>*>(index)[at];
        const float4 d = LoadQuad(dy, at);
        sum.x += places.x == own ? d.x : 0.0f;
        sum.y += places.y == own ? d.y : 0.0f;
        sum.z += places.z == own ? d.z : 0.0f;
        sum.w += places.w == own ? d.w : 0.0f;
      }
    }
    StoreQuad(dx, ((sample * w.in_height + row) * w.in_width + column) * quads + quad, sum);
  });
}

// Images as a row of `plane` places. A thread for each quad of each sample.
template <typename T>
__global__ void __launch_bounds__(kQuadThreads) MeanOfQuads(const T* x, T* y, int64_t batch, int64_t plane, int64_t channels) {
  const int64_t quads = channels / 4, quad = OwnQuad();
  if (quad >= quads) return;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * blockDim.y;
  for (int64_t sample = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; sample < batch; sample += stride) {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int64_t p = 0; p < plane; ++p) {
      sum = OfEach([](float a, float b) { return a + b; }, sum, LoadQuad(x, (sample * plane + p) * quads + quad));
    }
    StoreQuad(y, sample * quads + quad, OfEach([&](float s) { return s / static_cast<float>(plane); }, sum));
  }
}

template <typename T>
__global__ void __launch_bounds__(kQuadThreads) GradientOfMeanQuads(const T* dy, T* dx, int64_t batch, int64_t plane, int64_t channels) {
  const int64_t quads = channels / 4, quad = OwnQuad();
  if (quad >= quads) return;
  for (int64_t sample = blockIdx.y; sample < batch; sample += gridDim.y) {
    const float4 share = OfEach([&](float d) { return d / static_cast<float>(plane); }, LoadQuad(dy, sample * quads + quad));
    for (int64_t p = threadIdx.y; p < plane; p += blockDim.y) StoreQuad(dx, (sample * plane + p) * quads + quad, share);
  }
}

// ---- Element by element -----------------------------------------------------------------------------------------------------------------

template <typename T>
__global__ void MeanOfWindows(const T* x, T* y, Window w) {
  const float area = static_cast<float>(w.kernel_height * w.kernel_width);
  for (int64_t i = FirstElement(); i < w.outputs(); i += ElementStride()) {
    const Place p = PlaceOf(i, w.out_height, w.out_width, w.channels);
    float sum = 0;
    for (int64_t kh = 0; kh < w.kernel_height; ++kh) {
      for (int64_t kw = 0; kw < w.kernel_width; ++kw) {
        const int64_t h = p.row * w.stride_height - w.padding_height + kh, c = p.column * w.stride_width - w.padding_width + kw;
        if (h < 0 || h >= w.in_height || c < 0 || c >= w.in_width) continue;
        sum += x[((p.sample * w.in_height + h) * w.in_width + c) * w.channels + p.channel];
      }
    }
    y[i] = sum / area;
  }
}

template <typename T>
__global__ void GradientOfMean(const T* dy, T* dx, Window w) {
  const float area = static_cast<float>(w.kernel_height * w.kernel_width);
  for (int64_t i = FirstElement(); i < w.inputs(); i += ElementStride()) {
    const Place p = PlaceOf(i, w.in_height, w.in_width, w.channels);
    const Cover rows = CoverOf(p.row, w.kernel_height, w.stride_height, w.padding_height, w.out_height);
    const Cover columns = CoverOf(p.column, w.kernel_width, w.stride_width, w.padding_width, w.out_width);
    float sum = 0;
    for (int64_t row = rows.first; row <= rows.last; ++row) {
      for (int64_t column = columns.first; column <= columns.last; ++column) {
        sum += dy[((p.sample * w.out_height + row) * w.out_width + column) * w.channels + p.channel];
      }
    }
    dx[i] = sum / area;
  }
}

// A thread for each channel of each sample; neighbours read neighbours.
template <typename T>
__global__ void MeanOfPlanes(const T* x, T* y, int64_t batch, int64_t plane, int64_t channels) {
  for (int64_t i = FirstElement(); i < batch * channels; i += ElementStride()) {
    const T* first = x + i / channels * plane * channels + i % channels;
    float sum = 0;
    for (int64_t p = 0; p < plane; ++p) sum += first[p * channels];
    y[i] = sum / static_cast<float>(plane);
  }
}

template <typename T>
__global__ void GradientOfPlanes(const T* dy, T* dx, int64_t batch, int64_t plane, int64_t channels) {
  for (int64_t i = FirstElement(); i < batch * plane * channels; i += ElementStride()) {
    dx[i] = dy[i / (plane * channels) * channels + i % channels] / static_cast<float>(plane);
  }
}

template <typename T>
class MaxPool : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    int32_t* index = op_.outputs.size() > 1 ? arguments.outputs[1].as<int32_t>() : nullptr;
    const Window w = Window::Of(op_, op_.in(0), op_.out(0));
    if (InQuads(w.channels)) {
      return LaunchStatus(Launch(stream(), ImageGrid(w.batch, w.out_height, w.out_width, w.channels), QuadBlock(w.channels), 0,
                                 MaxOfQuads<T>, arguments.inputs[0].as<T>(), arguments.outputs[0].as<T>(), index, w));
    }
    return LaunchStatus(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, MaxOfWindows<T>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), index, w));
  }
};

template <typename T>
class MaxPoolGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const Window w = Window::Of(op_, op_.out(0), op_.in(0));
    const T* dy = arguments.inputs[0].as<T>();
    const auto* index = arguments.inputs[1].as<int32_t>();
    T* dx = arguments.outputs[0].as<T>();
    if (InQuads(w.channels)) {
      return LaunchStatus(Launch(stream(), ImageGrid(w.batch, w.in_height, w.in_width, w.channels), QuadBlock(w.channels), 0,
                                 GradientOfMaxQuads<T>, dy, index, dx, w));
    }
    return LaunchStatus(Launch(stream(), BlocksFor(w.inputs()), kThreads, 0, GradientOfMax<T>, dy, index, dx, w));
  }
};

template <typename T>
class AveragePool : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return LaunchStatus(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, MeanOfWindows<T>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), Window::Of(op_, op_.in(0), op_.out(0))));
  }
};

template <typename T>
class AveragePoolGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return LaunchStatus(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, GradientOfMean<T>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), Window::Of(op_, op_.out(0), op_.in(0))));
  }
};

template <typename T>
class GlobalAveragePool : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const tensor::Shape& shape = op_.in(0);
    const int64_t batch = shape.dim(0), plane = shape.dim(1) * shape.dim(2), channels = shape.dim(3);
    const T* x = arguments.inputs[0].as<T>();
    T* y = arguments.outputs[0].as<T>();
    if (!InQuads(channels))
      return LaunchStatus(Launch(stream(), BlocksFor(batch * channels), kThreads, 0, MeanOfPlanes<T>, x, y, batch, plane, channels));
    return LaunchStatus(
        Launch(stream(), QuadGrid(batch, channels, 1), QuadBlock(channels), 0, MeanOfQuads<T>, x, y, batch, plane, channels));
  }
};

template <typename T>
class GlobalAveragePoolGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const tensor::Shape& shape = op_.out(0);
    const int64_t batch = shape.dim(0), plane = shape.dim(1) * shape.dim(2), channels = shape.dim(3);
    const T* dy = arguments.inputs[0].as<T>();
    T* dx = arguments.outputs[0].as<T>();
    if (!InQuads(channels)) {
      return LaunchStatus(Launch(stream(), BlocksFor(shape.elements()), kThreads, 0, GradientOfPlanes<T>, dy, dx, batch, plane, channels));
    }
    const dim3 grid(static_cast<unsigned>(QuadStrips(channels)), static_cast<unsigned>(std::clamp<int64_t>(batch, 1, kMaxBlocks)));
    return LaunchStatus(Launch(stream(), grid, QuadBlock(channels), 0, GradientOfMeanQuads<T>, dy, dx, batch, plane, channels));
  }
};

}  // namespace

std::span<const Entry> PoolingKernels() {
  static constexpr Entry kEntries[] = {
      OnBothTypes<MaxPool>(OpKind::kMaxPool2d, "b", "b-"),
      OnBothTypes<MaxPoolGrad>(OpKind::kMaxPool2dGrad, "b-", "b"),
      OnBothTypes<AveragePool>(OpKind::kAvgPool2d, "b", "b"),
      OnBothTypes<AveragePoolGrad>(OpKind::kAvgPool2dGrad, "b", "b"),
      OnBothTypes<GlobalAveragePool>(OpKind::kGlobalAvgPool, "b", "b"),
      OnBothTypes<GlobalAveragePoolGrad>(OpKind::kGlobalAvgPoolGrad, "b", "b"),
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
