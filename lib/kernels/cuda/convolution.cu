// Convolutions by plain gathers, one thread or block for each result: right for every shape, and what stands in for cuDNN until that is
// there.
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cuda/column_sums.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr unsigned kMostBlocks = 65535;

// As kernels get it. Images are NHWC, weights [out, in of a group, height, width].
struct Window {
  int64_t batch, in_height, in_width, in_channels, out_height, out_width, out_channels, groups;
  int64_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width, dilation_height, dilation_width;

  static Window Of(const PreparedOp& op, const tensor::Shape& x, const tensor::Shape& y) {
    const ConvolutionShape s = ConvolutionShapeOf(op, x, y);
    return {s.batch,     s.in_height, s.in_width,  s.in_channels, s.out_height, s.out_width,  s.out_channels, s.groups,
            s.kernel[0], s.kernel[1], s.stride[0], s.stride[1],   s.padding[0], s.padding[1], s.dilation[0],  s.dilation[1]};
  }
  __host__ __device__ int64_t in_of_group() const { return in_channels / groups; }
  __host__ __device__ int64_t out_of_group() const { return out_channels / groups; }
  __host__ __device__ int64_t inputs() const { return batch * in_height * in_width * in_channels; }
  __host__ __device__ int64_t outputs() const { return batch * out_height * out_width * out_channels; }
  __host__ __device__ int64_t weights() const { return out_channels * in_of_group() * kernel_height * kernel_width; }
};

__global__ void Convolve(const float* x, const float* weight, const float* bias, float* y, Window w) {
  for (int64_t i = FirstElement(); i < w.outputs(); i += ElementStride()) {
    const int64_t channel = i % w.out_channels, column = i / w.out_channels % w.out_width;
    const int64_t row = i / (w.out_channels * w.out_width) % w.out_height, sample = i / (w.out_channels * w.out_width * w.out_height);
    const int64_t first_in = channel / w.out_of_group() * w.in_of_group();
    float sum = 0;
    for (int64_t kh = 0; kh < w.kernel_height; ++kh) {
      const int64_t h = row * w.stride_height - w.padding_height + kh * w.dilation_height;
      if (h < 0 || h >= w.in_height) continue;
      for (int64_t kw = 0; kw < w.kernel_width; ++kw) {
        const int64_t c = column * w.stride_width - w.padding_width + kw * w.dilation_width;
        if (c < 0 || c >= w.in_width) continue;
        const float* in = x + ((sample * w.in_height + h) * w.in_width + c) * w.in_channels + first_in;
        const float* of_place = weight + (channel * w.in_of_group() * w.kernel_height + kh) * w.kernel_width + kw;
        for (int64_t k = 0; k < w.in_of_group(); ++k) sum += in[k] * of_place[k * w.kernel_height * w.kernel_width];
      }
    }
    y[i] = sum + (bias != nullptr ? bias[channel] : 0.0f);
  }
}

__global__ void ConvolveBack(const float* dy, const float* weight, float* dx, Window w) {
  for (int64_t i = FirstElement(); i < w.inputs(); i += ElementStride()) {
    const int64_t channel = i % w.in_channels, column = i / w.in_channels % w.in_width;
    const int64_t row = i / (w.in_channels * w.in_width) % w.in_height, sample = i / (w.in_channels * w.in_width * w.in_height);
    const int64_t group = channel / w.in_of_group(), within = channel % w.in_of_group();
    float sum = 0;
    for (int64_t kh = 0; kh < w.kernel_height; ++kh) {
      const int64_t h = row + w.padding_height - kh * w.dilation_height;
      if (h < 0 || h % w.stride_height != 0 || h / w.stride_height >= w.out_height) continue;
      for (int64_t kw = 0; kw < w.kernel_width; ++kw) {
        const int64_t c = column + w.padding_width - kw * w.dilation_width;
        if (c < 0 || c % w.stride_width != 0 || c / w.stride_width >= w.out_width) continue;
        const float* out = dy + ((sample * w.out_height + h / w.stride_height) * w.out_width + c / w.stride_width) * w.out_channels;
        for (int64_t o = group * w.out_of_group(); o < (group + 1) * w.out_of_group(); ++o) {
          sum += out[o] * weight[((o * w.in_of_group() + within) * w.kernel_height + kh) * w.kernel_width + kw];
        }
      }
    }
    dx[i] = sum;
  }
}

// A block for each weight: its threads share the places of all images, in an order that depends on the shape alone.
__global__ void GradientOfWeights(const float* x, const float* dy, float* dw, Window w, bool accumulate) {
  const int64_t places = w.batch * w.out_height * w.out_width;
  for (int64_t i = blockIdx.x; i < w.weights(); i += gridDim.x) {
    const int64_t kw = i % w.kernel_width, kh = i / w.kernel_width % w.kernel_height;
    const int64_t within = i / (w.kernel_width * w.kernel_height) % w.in_of_group();
    const int64_t out = i / (w.kernel_width * w.kernel_height * w.in_of_group());
    const int64_t in = out / w.out_of_group() * w.in_of_group() + within;
    float sum = 0;
    for (int64_t p = threadIdx.x; p < places; p += blockDim.x) {
      const int64_t column = p % w.out_width, row = p / w.out_width % w.out_height, sample = p / (w.out_width * w.out_height);
      const int64_t h = row * w.stride_height - w.padding_height + kh * w.dilation_height;
      const int64_t c = column * w.stride_width - w.padding_width + kw * w.dilation_width;
      if (h < 0 || h >= w.in_height || c < 0 || c >= w.in_width) continue;
      sum += x[((sample * w.in_height + h) * w.in_width + c) * w.in_channels + in] * dy[p * w.out_channels + out];
    }
    sum = SumOverBlock(sum);
    if (threadIdx.x == 0) dw[i] = sum + (accumulate ? dw[i] : 0.0f);
  }
}

class Convolution : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const float* bias = op_.parameters.size() > 1 ? arguments.parameters[1].f32() : nullptr;
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, Convolve, arguments.inputs[0].f32(),
                           arguments.parameters[0].f32(), bias, arguments.outputs[0].f32(), Window::Of(op_, op_.in(0), op_.out(0))));
  }
};

class ConvolutionGradInput : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return Launched(Launch(stream(), BlocksFor(op_.out(0).elements()), kThreads, 0, ConvolveBack, arguments.inputs[0].f32(),
                           arguments.parameters[0].f32(), arguments.outputs[0].f32(), Window::Of(op_, op_.out(0), op_.in(0))));
  }
};

class ConvolutionGradWeight : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  size_t workspace_bytes() const override { return ColumnSumsWorkspaceBytes(op_.in(1).rows(), op_.in(1).dim(-1)); }
  absl::Status Run(const KernelArguments& arguments) override {
    const float* dy = arguments.inputs[1].f32();
    if (float* dw = OutputOrNull(arguments, 0); dw != nullptr) {
      const Window window = Window::Of(op_, op_.in(0), op_.in(1));
      const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(window.weights(), 1, kMostBlocks));
      FUSIONLLM_RETURN_IF_ERROR(Launched(
          Launch(stream(), blocks, kThreads, 0, GradientOfWeights, arguments.inputs[0].f32(), dy, dw, window, Accumulates(arguments, 0))));
    }
    float* dbias = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr;
    if (dbias == nullptr) return absl::OkStatus();
    return Launched(
        SumColumns(stream(), dy, op_.in(1).rows(), op_.in(1).dim(-1), Accumulates(arguments, 1), arguments.workspace.data(), dbias));
  }
};

}  // namespace

std::span<const Entry> ConvolutionKernels() {
  static constexpr Entry kEntries[] = {{"conv2d", Make<Convolution>},
                                       {"conv2d_grad_input", Make<ConvolutionGradInput>},
                                       {"conv2d_grad_weight", Make<ConvolutionGradWeight>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
