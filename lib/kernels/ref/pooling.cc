#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

// Calls visit(y index, x index, h * W + w) for every element of every window, rows first.
template <typename Visit>
void ForEachElement(const ConvolutionShape& s, Visit visit) {
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t oh = 0; oh < s.out_height; ++oh) {
      for (int64_t ow = 0; ow < s.out_width; ++ow) {
        for (int64_t kh = 0; kh < s.kernel[0]; ++kh) {
          for (int64_t kw = 0; kw < s.kernel[1]; ++kw) {
            const int64_t h = oh * s.stride[0] - s.padding[0] + kh;
            const int64_t w = ow * s.stride[1] - s.padding[1] + kw;
            if (h < 0 || h >= s.in_height || w < 0 || w >= s.in_width) continue;
            for (int64_t c = 0; c < s.in_channels; ++c) {
              visit(((b * s.out_height + oh) * s.out_width + ow) * s.out_channels + c,
                    ((b * s.in_height + h) * s.in_width + w) * s.in_channels + c, h * s.in_width + w);
            }
          }
        }
      }
    }
  }
}

// The first of equal elements wins, and a NaN beats everything, as in torch.
absl::Status MaxPool(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t count = op.out(0).elements();
  const float* x = arguments.inputs[0].f32();
  std::vector<float> y(count, -INFINITY);
  std::vector<int32_t> index(count, -1);
  ForEachElement(PoolingShapeOf(op, op.in(0), op.out(0)), [&](int64_t yi, int64_t xi, int64_t place) {
    if (index[yi] < 0 || x[xi] > y[yi] || std::isnan(x[xi])) {
      y[yi] = x[xi];
      index[yi] = static_cast<int32_t>(place);
    }
  });
  std::copy(y.begin(), y.end(), arguments.outputs[0].f32());
  if (arguments.outputs.size() > 1 && arguments.outputs[1].data != nullptr) {
    std::copy(index.begin(), index.end(), arguments.outputs[1].as<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status MaxPoolGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const tensor::Shape& x = op.out(0);
  const int64_t plane = x.dim(1) * x.dim(2);
  const int64_t channels = x.dim(3);
  const int64_t outputs_of_sample = op.in(0).dim(1) * op.in(0).dim(2) * channels;
  const auto* index = arguments.inputs[1].as<int32_t>();
  std::vector<double> dx(x.elements(), 0);
  for (int64_t i = 0; i < op.in(0).elements(); ++i) {
    if (index[i] < 0 || index[i] >= plane) {
      return absl::InvalidArgumentError(
          absl::StrCat(op.Prefix(), "index at position ", i, " is ", index[i], ", outside the input plane of ", plane));
    }
    dx[(i / outputs_of_sample * plane + index[i]) * channels + i % channels] += arguments.inputs[0].f32()[i];
  }
  for (size_t i = 0; i < dx.size(); ++i) arguments.outputs[0].f32()[i] = static_cast<float>(dx[i]);
  return absl::OkStatus();
}

absl::Status AveragePool(const PreparedOp& op, const KernelArguments& arguments) {
  const ConvolutionShape s = PoolingShapeOf(op, op.in(0), op.out(0));
  std::vector<double> sums(op.out(0).elements(), 0);
  ForEachElement(s, [&](int64_t yi, int64_t xi, int64_t) { sums[yi] += arguments.inputs[0].f32()[xi]; });
  const auto area = static_cast<double>(s.kernel[0] * s.kernel[1]);
  for (size_t i = 0; i < sums.size(); ++i) arguments.outputs[0].f32()[i] = static_cast<float>(sums[i] / area);
  return absl::OkStatus();
}

absl::Status AveragePoolGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const ConvolutionShape s = PoolingShapeOf(op, op.out(0), op.in(0));
  std::vector<double> dx(op.out(0).elements(), 0);
  ForEachElement(s, [&](int64_t yi, int64_t xi, int64_t) { dx[xi] += arguments.inputs[0].f32()[yi]; });
  const auto area = static_cast<double>(s.kernel[0] * s.kernel[1]);
  for (size_t i = 0; i < dx.size(); ++i) arguments.outputs[0].f32()[i] = static_cast<float>(dx[i] / area);
  return absl::OkStatus();
}

absl::Status GlobalAveragePool(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t plane = op.in(0).dim(1) * op.in(0).dim(2);
  const int64_t channels = op.in(0).dim(3);
  for (int64_t b = 0; b < op.in(0).dim(0); ++b) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < plane; ++i) sum += arguments.inputs[0].f32()[(b * plane + i) * channels + c];
      arguments.outputs[0].f32()[b * channels + c] = static_cast<float>(sum / static_cast<double>(plane));
    }
  }
  return absl::OkStatus();
}

absl::Status GlobalAveragePoolGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t plane = op.out(0).dim(1) * op.out(0).dim(2);
  const int64_t channels = op.out(0).dim(3);
  for (int64_t i = 0; i < op.out(0).elements(); ++i) {
    const double dy = arguments.inputs[0].f32()[i / (plane * channels) * channels + i % channels];
    arguments.outputs[0].f32()[i] = static_cast<float>(dy / static_cast<double>(plane));
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> PoolingKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kMaxPool2d, MaxPool},
      {OpKind::kMaxPool2dGrad, MaxPoolGrad},
      {OpKind::kAvgPool2d, AveragePool},
      {OpKind::kAvgPool2dGrad, AveragePoolGrad},
      {OpKind::kGlobalAvgPool, GlobalAveragePool},
      {OpKind::kGlobalAvgPoolGrad, GlobalAveragePoolGrad},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
