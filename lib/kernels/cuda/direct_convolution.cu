// Convolutions by plain gathers, one thread or block for each result: right for every shape, and what stands in for cuDNN where that is
// not to be had.
#include <algorithm>

#include "lib/kernels/cuda/convolution_plan.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

// As kernels get it.
struct Window {
  int64_t batch, in_height, in_width, in_channels, out_height, out_width, out_channels, groups;
  int64_t kernel_height, kernel_width, stride_height, stride_width, padding_height, padding_width, dilation_height, dilation_width;

  static Window Of(const ConvolutionShape& s) {
    return {s.batch,     s.in_height, s.in_width,  s.in_channels, s.out_height, s.out_width,  s.out_channels, s.groups,
            s.kernel[0], s.kernel[1], s.stride[0], s.stride[1],   s.padding[0], s.padding[1], s.dilation[0],  s.dilation[1]};
  }
  __host__ __device__ int64_t in_of_group() const { return in_channels / groups; }
  __host__ __device__ int64_t out_of_group() const { return out_channels / groups; }
  // Of the first channel of the group, in weights as convolution_plan.h has them.
  __host__ __device__ int64_t WeightAt(int64_t out, int64_t kh, int64_t kw) const {
    return ((out * kernel_height + kh) * kernel_width + kw) * in_of_group();
  }
};

template <typename T>
__global__ void Convolve(const T* x, const T* weight, T* y, int64_t count, Window w) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
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
        const T* in = x + ((sample * w.in_height + h) * w.in_width + c) * w.in_channels + first_in;
        const T* of_place = weight + w.WeightAt(channel, kh, kw);
        for (int64_t k = 0; k < w.in_of_group(); ++k) sum += static_cast<float>(in[k]) * static_cast<float>(of_place[k]);
      }
    }
    y[i] = sum;
  }
}

template <typename T>
__global__ void ConvolveBack(const T* dy, const T* weight, T* dx, int64_t count, Window w) {
  for (int64_t i = FirstElement(); i < count; i += ElementStride()) {
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
        const T* out = dy + ((sample * w.out_height + h / w.stride_height) * w.out_width + c / w.stride_width) * w.out_channels;
        for (int64_t o = group * w.out_of_group(); o < (group + 1) * w.out_of_group(); ++o) {
          sum += static_cast<float>(out[o]) * static_cast<float>(weight[w.WeightAt(o, kh, kw) + within]);
        }
      }
    }
    dx[i] = sum;
  }
}

// A block for each weight: its threads share the places of all images, in an order that depends on the shape alone.
template <typename T>
__global__ void GradientOfWeights(const T* x, const T* dy, T* dw, int64_t count, Window w) {
  const int64_t places = w.batch * w.out_height * w.out_width;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const int64_t within = i % w.in_of_group(), kw = i / w.in_of_group() % w.kernel_width;
    const int64_t kh = i / (w.in_of_group() * w.kernel_width) % w.kernel_height;
    const int64_t out = i / (w.in_of_group() * w.kernel_width * w.kernel_height);
    const int64_t in = out / w.out_of_group() * w.in_of_group() + within;
    float sum = 0;
    for (int64_t p = threadIdx.x; p < places; p += blockDim.x) {
      const int64_t column = p % w.out_width, row = p / w.out_width % w.out_height, sample = p / (w.out_width * w.out_height);
      const int64_t h = row * w.stride_height - w.padding_height + kh * w.dilation_height;
      const int64_t c = column * w.stride_width - w.padding_width + kw * w.dilation_width;
      if (h < 0 || h >= w.in_height || c < 0 || c >= w.in_width) continue;
      const float value = x[((sample * w.in_height + h) * w.in_width + c) * w.in_channels + in];
      sum += value * static_cast<float>(dy[p * w.out_channels + out]);
    }
    sum = SumOverBlock(sum);
    if (threadIdx.x == 0) dw[i] = sum;
  }
}

class GatheredConvolution final : public ConvolutionPlan {
 public:
  GatheredConvolution(Device& device, const ConvolutionSpec& spec) : device_(device), spec_(spec) {}
  size_t workspace_bytes() const override { return 0; }
  absl::Status Run(const void* first, const void* second, void* result, void*) const override {
    return ToStatus(
        spec_.precision == ConvolutionPrecision::kBf16 ? Start<Bf16>(first, second, result) : Start<float>(first, second, result),
        "starting a convolution by gathers");
  }

 private:
  template <typename T>
  cudaError_t Start(const void* first, const void* second, void* result) const {
    const auto* const a = static_cast<const T*>(first);
    const auto* const b = static_cast<const T*>(second);
    auto* const out = static_cast<T*>(result);
    const ConvolutionShape& s = spec_.shape;
    const Window window = Window::Of(s);
    switch (spec_.pass) {
      case ConvolutionPass::kForward:
        return Launch(device_.stream(), BlocksFor(s.outputs()), kThreads, 0, Convolve<T>, a, b, out, s.outputs(), window);
      case ConvolutionPass::kGradInput:
        return Launch(device_.stream(), BlocksFor(s.inputs()), kThreads, 0, ConvolveBack<T>, a, b, out, s.inputs(), window);
      case ConvolutionPass::kGradWeight: {
        const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(s.weights(), 1, kMaxBlocks));
        return Launch(device_.stream(), blocks, kThreads, 0, GradientOfWeights<T>, a, b, out, s.weights(), window);
      }
    }
    return cudaErrorInvalidValue;
  }

  Device& device_;
  const ConvolutionSpec spec_;
};

}  // namespace

std::unique_ptr<ConvolutionPlan> PrepareDirectConvolution(Device& device, const ConvolutionSpec& spec) {
  return std::make_unique<GatheredConvolution>(device, spec);
}

}  // namespace fusionllm::kernels::cuda
