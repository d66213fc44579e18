#include <algorithm>
#include <cmath>

#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

absl::Status Softmax(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t width = op.in(0).dim(-1);
  const bool log = op.kind == OpKind::kLogSoftmax;
  for (int64_t row = 0; row < op.in(0).rows(); ++row) {
    const float* x = arguments.inputs[0].f32() + row * width;
    float* y = arguments.outputs[0].f32() + row * width;
    double top = x[0];
    for (int64_t i = 1; i < width; ++i) top = std::max(top, static_cast<double>(x[i]));
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(x[i] - top);
    for (int64_t i = 0; i < width; ++i) y[i] = static_cast<float>(log ? x[i] - top - std::log(sum) : std::exp(x[i] - top) / sum);
  }
  return absl::OkStatus();
}

absl::Status SoftmaxGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t width = op.in(0).dim(-1);
  const bool log = op.kind == OpKind::kLogSoftmaxGrad;
  for (int64_t row = 0; row < op.in(0).rows(); ++row) {
    const float* y = arguments.inputs[0].f32() + row * width;
    const float* dy = arguments.inputs[1].f32() + row * width;
    float* dx = arguments.outputs[0].f32() + row * width;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += log ? dy[i] : static_cast<double>(dy[i]) * y[i];
    for (int64_t i = 0; i < width; ++i) {
      dx[i] = static_cast<float>(log ? dy[i] - std::exp(static_cast<double>(y[i])) * sum : y[i] * (dy[i] - sum));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> SoftmaxKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kSoftmax, Softmax},
                                       {OpKind::kSoftmaxGrad, SoftmaxGrad},
                                       {OpKind::kLogSoftmax, Softmax},
                                       {OpKind::kLogSoftmaxGrad, SoftmaxGrad}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
