#include "lib/kernels/convolution_shape.h"

namespace fusionllm::kernels {
namespace {

ConvolutionShape ShapeOf(const PreparedOp& op, const tensor::Shape& x, const tensor::Shape& y, std::array<int64_t, 2> default_stride) {
  return {.batch = x.dim(0),
          .in_height = x.dim(1),
          .in_width = x.dim(2),
          .in_channels = x.dim(3),
          .out_height = y.dim(1),
          .out_width = y.dim(2),
          .out_channels = y.dim(3),
          .kernel = Pair(op.attributes, "kernel", {1, 1}),
          .stride = Pair(op.attributes, "stride", default_stride),
          .padding = Pair(op.attributes, "padding", {0, 0}),
          .dilation = Pair(op.attributes, "dilation", {1, 1}),
          .groups = op.attributes.Int("groups", 1)};
}

}  // namespace

ConvolutionShape ConvolutionShapeOf(const PreparedOp& op, const tensor::Shape& x, const tensor::Shape& y) {
  return ShapeOf(op, x, y, {1, 1});
}

ConvolutionShape PoolingShapeOf(const PreparedOp& op, const tensor::Shape& x, const tensor::Shape& y) {
  return ShapeOf(op, x, y, Pair(op.attributes, "kernel", {1, 1}));
}

}  // namespace fusionllm::kernels
