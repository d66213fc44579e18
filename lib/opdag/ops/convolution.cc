// 2-D convolution on NHWC images with OIHW weights.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

std::vector<AttributeSchema> Attributes2d(std::vector<AttributeSchema> more) {
  std::vector<AttributeSchema> attributes = {{"out", AttributeKind::kInt, true}, {"kernel", AttributeKind::kInts, true},
                                             {"stride", AttributeKind::kInts},   {"padding", AttributeKind::kInts},
                                             {"dilation", AttributeKind::kInts}, {"groups", AttributeKind::kInt},
                                             {"bias", AttributeKind::kBool}};
  attributes.insert(attributes.end(), more.begin(), more.end());
  return attributes;
}

struct Geometry {
  TensorType weight, bias, y;
  double flops = 0;  // of one pass: forward, or either gradient
};

// The weights and output that belong to images of type x.
absl::StatusOr<Geometry> GeometryOf(const Attributes& attributes, const TensorType& x) {
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
  FUSIONLLM_RETURN_IF_ERROR(RequireRank("x", x, 4));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t out, PositiveInt(attributes, "out"));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto kernel, Window(attributes, "kernel", 1, 1));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto stride, Window(attributes, "stride", 1, 1));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto padding, Window(attributes, "padding", 0, 0));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto dilation, Window(attributes, "dilation", 1, 1));
  const int64_t groups = attributes.Int("groups", 1);
  const int64_t in = x.shape[3];
  if (groups < 1 || in % groups != 0 || out % groups != 0) {
    return Refuse(groups, " groups do not divide ", in, " input and ", out, " output channels");
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t height, WindowOutputExtent(x.shape[1], kernel[0], stride[0], padding[0], dilation[0]));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t width, WindowOutputExtent(x.shape[2], kernel[1], stride[1], padding[1], dilation[1]));
  Geometry geometry{F32({out, in / groups, kernel[0], kernel[1]}), F32({out}), F32({x.shape[0], height, width, out}), 0};
  FUSIONLLM_RETURN_IF_ERROR(CheckLimits(geometry.weight));
  FUSIONLLM_RETURN_IF_ERROR(CheckLimits(geometry.y));
  geometry.flops =
      2.0 * static_cast<double>(geometry.y.elements()) * static_cast<double>(kernel[0] * kernel[1]) * static_cast<double>(in / groups);
  return geometry;
}

Types WithBias(const Attributes& attributes, const Geometry& geometry) {
  Types types = {geometry.weight};
  if (attributes.Bool("bias", false)) types.push_back(geometry.bias);
  return types;
}

int ConvolutionInputs(const Attributes& attributes) { return attributes.Bool("bias", false) ? 2 : 1; }

// The gradient with respect to the images knows them only by the attribute in_shape.
absl::StatusOr<TensorType> ImagesOf(const Attributes& attributes) {
  FUSIONLLM_ASSIGN_OR_RETURN(Extents extents, ShapeAttribute(attributes, "in_shape", 1));
  TensorType images = F32(std::move(extents));
  FUSIONLLM_RETURN_IF_ERROR(CheckLimits(images));
  return images;
}

double Flops(const Attributes& attributes, const TensorType& x) {
  const absl::StatusOr<Geometry> geometry = GeometryOf(attributes, x);
  return geometry.ok() ? geometry->flops : 0;
}

OpSchema Forward() {
  OpSchema schema = MakeSchema(OpKind::kConv2d, OpRole::kParametric, OpClass::kConvolution, {"x"}, {"y"});
  schema.parameters = {"weight", "bias"};
  schema.optional_parameters = 1;
  schema.attributes = Attributes2d({});
  schema.parameter_count = ConvolutionInputs;
  schema.parameter_types = [](const Attributes& attributes, const Types& inputs) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(attributes, inputs[0]));
    return WithBias(attributes, geometry);
  };
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(op.attributes, InputType(graph, op, 0)));
    return Types{geometry.y};
  };
  schema.flops = [](const Graph& graph, const Op& op) { return Flops(op.attributes, InputType(graph, op, 0)); };
  return schema;
}

OpSchema ConvolutionGradInput() {
  OpSchema schema = MakeBackward(OpKind::kConv2dGradInput, OpClass::kConvolution, {"dy"}, {"dx"});
  schema.parameters = {"weight"};
  schema.attributes = Attributes2d({{"in_shape", AttributeKind::kInts, true}});
  schema.parameter_types = [](const Attributes& attributes, const Types&) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const TensorType images, ImagesOf(attributes));
    FUSIONLLM_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(attributes, images));
    return Types{geometry.weight};
  };
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const TensorType images, ImagesOf(op.attributes));
    FUSIONLLM_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(op.attributes, images));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 0), geometry.y));
    return Types{images};
  };
  schema.flops = [](const Graph& graph, const Op& op) { return Flops(op.attributes, OutputType(graph, op)); };
  return schema;
}

OpSchema ConvolutionGradWeight() {
  OpSchema schema = MakeBackward(OpKind::kConv2dGradWeight, OpClass::kConvolution, {"x", "dy"}, {"dweight", "dbias"});
  schema.attributes = Attributes2d({});
  schema.output_count = ConvolutionInputs;
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const Geometry geometry, GeometryOf(op.attributes, InputType(graph, op, 0)));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 1), geometry.y));
    return WithBias(op.attributes, geometry);
  };
  schema.flops = [](const Graph& graph, const Op& op) { return Flops(op.attributes, InputType(graph, op, 0)); };
  return schema;
}

}  // namespace

void AddConvolution(std::vector<OpSchema>& schemas) {
  schemas.push_back(Forward());
  schemas.push_back(ConvolutionGradInput());
  schemas.push_back(ConvolutionGradWeight());
}

}  // namespace fusionllm::opdag::ops
