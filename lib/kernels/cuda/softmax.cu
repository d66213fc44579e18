// Softmax and its logarithm over the last axis: a block for each row.
#include <utility>

#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

template <bool kLog, typename T>
__global__ void SoftmaxRows(const T* x, T* y, int64_t rows, int64_t width) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* in = x + row * width;
    T* out = y + row * width;
    float top = -INFINITY;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) top = fmaxf(top, in[i]);
    top = MaxOverBlock(top);
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) sum += expf(in[i] - top);
    sum = SumOverBlock(sum);
    const float log_sum = logf(sum), factor = 1.0f / sum;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) out[i] = kLog ? in[i] - top - log_sum : expf(in[i] - top) * factor;
  }
}

template <bool kLog, typename T>
__global__ void SoftmaxGradRows(const T* y, const T* dy, T* dx, int64_t rows, int64_t width) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const int64_t first = row * width;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
      sum += kLog ? static_cast<float>(dy[first + i]) : dy[first + i] * y[first + i];
    sum = SumOverBlock(sum);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      dx[first + i] = kLog ? dy[first + i] - expf(y[first + i]) * sum : y[first + i] * (dy[first + i] - sum);
    }
  }
}

template <bool kLog, typename T>
class Softmax : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return LaunchStatus(Launch(stream(), BlocksForRows(op_.in(0).rows()), kThreads, 0, SoftmaxRows<kLog, T>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), op_.in(0).rows(), op_.in(0).dim(-1)));
  }
};

template <bool kLog, typename T>
class SoftmaxGrad : public DeviceKernel {
 public:
  using DeviceKernel::DeviceKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    return LaunchStatus(Launch(stream(), BlocksForRows(op_.in(0).rows()), kThreads, 0, SoftmaxGradRows<kLog, T>,
                               arguments.inputs[0].as<T>(), arguments.inputs[1].as<T>(), arguments.outputs[0].as<T>(), op_.in(0).rows(),
                               op_.in(0).dim(-1)));
  }
};

template <bool kLog>
constexpr Entry SoftmaxEntry(opdag::OpKind kind) {
  return {kind, Make<Softmax<kLog, float>>, {Make<Softmax<kLog, Bf16>>, "b", "b"}};
}
template <bool kLog>
constexpr Entry SoftmaxGradEntry(opdag::OpKind kind) {
  return {kind, Make<SoftmaxGrad<kLog, float>>, {Make<SoftmaxGrad<kLog, Bf16>>, "bb", "b"}};
}

}  // namespace

std::span<const Entry> SoftmaxKernels() {
  static constexpr Entry kEntries[] = {SoftmaxEntry<false>(OpKind::kSoftmax), SoftmaxEntry<true>(OpKind::kLogSoftmax),
                                       SoftmaxGradEntry<false>(OpKind::kSoftmaxGrad), SoftmaxGradEntry<true>(OpKind::kLogSoftmaxGrad)};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
