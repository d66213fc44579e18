// Two-dimensional cross-correlation of NHWC images with OIHW weights, as torch.nn.Conv2d.
#include <vector>

#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

// Calls visit(x index, weight index, y index) for every multiply-add of the convolution.
template <typename Visit>
void ForEachProduct(const ConvolutionShape& s, Visit visit) {
  const int64_t in_of_group = s.in_channels / s.groups;
  const int64_t out_of_group = s.out_channels / s.groups;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t oh = 0; oh < s.out_height; ++oh) {
      for (int64_t ow = 0; ow < s.out_width; ++ow) {
        for (int64_t kh = 0; kh < s.kernel[0]; ++kh) {
          for (int64_t kw = 0; kw < s.kernel[1]; ++kw) {
            const int64_t h = oh * s.stride[0] - s.padding[0] + kh * s.dilation[0];
            const int64_t w = ow * s.stride[1] - s.padding[1] + kw * s.dilation[1];
            if (h < 0 || h >= s.in_height || w < 0 || w >= s.in_width) continue;
            for (int64_t o = 0; o < s.out_channels; ++o) {
              for (int64_t i = 0; i < in_of_group; ++i) {
                visit(((b * s.in_height + h) * s.in_width + w) * s.in_channels + o / out_of_group * in_of_group + i,
                      ((o * in_of_group + i) * s.kernel[0] + kh) * s.kernel[1] + kw,
                      ((b * s.out_height + oh) * s.out_width + ow) * s.out_channels + o);
              }
            }
          }
        }
      }
    }
  }
}

void Store(const std::vector<double>& sums, bool accumulate, float* out) {
  for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<float>(sums[i]) + (accumulate ? out[i] : 0.f);
}

absl::Status Convolution(const PreparedOp& op, const KernelArguments& arguments) {
  const ConvolutionShape s = ConvolutionShapeOf(op, op.in(0), op.out(0));
  const float* x = arguments.inputs[0].f32();
  const float* w = arguments.parameters[0].f32();
  std::vector<double> y(op.out(0).elements(), 0);
  if (op.parameters.size() > 1) {
    for (size_t i = 0; i < y.size(); ++i) y[i] = arguments.parameters[1].f32()[i % s.out_channels];
  }
  ForEachProduct(s, [&](int64_t xi, int64_t wi, int64_t yi) { y[yi] += static_cast<double>(x[xi]) * w[wi]; });
  Store(y, false, arguments.outputs[0].f32());
  return absl::OkStatus();
}

absl::Status ConvolutionGradInput(const PreparedOp& op, const KernelArguments& arguments) {
  const float* dy = arguments.inputs[0].f32();
  const float* w = arguments.parameters[0].f32();
  std::vector<double> dx(op.out(0).elements(), 0);
  ForEachProduct(ConvolutionShapeOf(op, op.out(0), op.in(0)),
                 [&](int64_t xi, int64_t wi, int64_t yi) { dx[xi] += static_cast<double>(dy[yi]) * w[wi]; });
  Store(dx, false, arguments.outputs[0].f32());
  return absl::OkStatus();
}

absl::Status ConvolutionGradWeight(const PreparedOp& op, const KernelArguments& arguments) {
  const ConvolutionShape s = ConvolutionShapeOf(op, op.in(0), op.in(1));
  const float* x = arguments.inputs[0].f32();
  const float* dy = arguments.inputs[1].f32();
  if (float* out = OutputOrNull(arguments, 0); out != nullptr) {
    std::vector<double> dw(op.out(0).elements(), 0);
    ForEachProduct(s, [&](int64_t xi, int64_t wi, int64_t yi) { dw[wi] += static_cast<double>(x[xi]) * dy[yi]; });
    Store(dw, Accumulates(arguments, 0), out);
  }
  if (float* out = op.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr; out != nullptr) {
    std::vector<double> dbias(s.out_channels, 0);
    for (int64_t i = 0; i < op.in(1).elements(); ++i) dbias[i % s.out_channels] += dy[i];
    Store(dbias, Accumulates(arguments, 1), out);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> ConvolutionKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kConv2d, Convolution}, {OpKind::kConv2dGradInput, ConvolutionGradInput}, {OpKind::kConv2dGradWeight, ConvolutionGradWeight}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
