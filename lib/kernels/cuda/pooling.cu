#include <utility>

#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

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
__device__ inline Cover CoverOf(int64_t place, int64_t kernel, int64_t stride, int64_t padding, int64_t extent) {
  const int64_t low = place + padding - kernel + 1;
  const int64_t first = low <= 0 ? 0 : (low + stride - 1) / stride;
  const int64_t last = (place + padding) / stride;
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
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, MaxOfWindows<T>, arguments.inputs[0].as<T>(),
                           arguments.outputs[0].as<T>(), index, Window::Of(op_, op_.in(0), op_.out(0))));
  }
};

template <typename T>
class MaxPoolGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, GradientOfMax<T>, arguments.inputs[0].as<T>(),
                           arguments.inputs[1].as<int32_t>(), arguments.outputs[0].as<T>(), Window::Of(op_, op_.out(0), op_.in(0))));
  }
};

template <typename T>
class AveragePool : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, MeanOfWindows<T>, arguments.inputs[0].as<T>(),
                           arguments.outputs[0].as<T>(), Window::Of(op_, op_.in(0), op_.out(0))));
  }
};

template <typename T>
class AveragePoolGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, GradientOfMean<T>, arguments.inputs[0].as<T>(),
                           arguments.outputs[0].as<T>(), Window::Of(op_, op_.out(0), op_.in(0))));
  }
};

template <typename T>
class GlobalAveragePool : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, MeanOfPlanes<T>, arguments.inputs[0].as<T>(),
                           arguments.outputs[0].as<T>(), op_.in(0).dim(0), op_.in(0).dim(1) * op_.in(0).dim(2), op_.in(0).dim(3)));
  }
};

template <typename T>
class GlobalAveragePoolGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, GradientOfPlanes<T>, arguments.inputs[0].as<T>(),
                           arguments.outputs[0].as<T>(), op_.out(0).dim(0), op_.out(0).dim(1) * op_.out(0).dim(2), op_.out(0).dim(3)));
  }
};

}  // namespace

std::span<const Entry> PoolingKernels() {
  static constexpr Entry kEntries[] = {
      OnBothTypes<MaxPool>("max_pool2d", "b", "b-"),
      OnBothTypes<MaxPoolGrad>("max_pool2d_grad", "b-", "b"),
      OnBothTypes<AveragePool>("avg_pool2d", "b", "b"),
      OnBothTypes<AveragePoolGrad>("avg_pool2d_grad", "b", "b"),
      OnBothTypes<GlobalAveragePool>("global_avg_pool", "b", "b"),
      OnBothTypes<GlobalAveragePoolGrad>("global_avg_pool_grad", "b", "b"),
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
