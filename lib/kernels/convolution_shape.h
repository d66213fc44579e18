// The extents of a convolution or pooling window over NHWC images, read once from an op's attributes and types.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels {

struct ConvolutionShape {
  int64_t batch, in_height, in_width, in_channels, out_height, out_width, out_channels;
  std::array<int64_t, 2> kernel, stride, padding, dilation;  // {vertical, horizontal}; padding on either side
  int64_t groups;
  auto operator<=>(const ConvolutionShape&) const = default;

  int64_t inputs() const { return batch * in_height * in_width * in_channels; }
  int64_t outputs() const { return batch * out_height * out_width * out_channels; }
  int64_t weights() const { return out_channels * (in_channels / groups) * kernel[0] * kernel[1]; }
};

// Defaults as in torch: stride 1, padding 0, dilation 1, one group.
ConvolutionShape ConvolutionShapeOf(const PreparedOp& op, const tensor::Shape& x, const tensor::Shape& y);
// The same for pooling, whose default stride is the kernel.
ConvolutionShape PoolingShapeOf(const PreparedOp& op, const tensor::Shape& x, const tensor::Shape& y);

}  // namespace fusionllm::kernels
