// Spatial pooling of NHWC images.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

std::vector<AttributeSchema> WindowAttributes(bool backward) {
  std::vector<AttributeSchema> attributes = {
      {"kernel", AttributeKind::kInts, true}, {"stride", AttributeKind::kInts, true}, {"padding", AttributeKind::kInts}};
  if (backward) attributes.push_back({"in_shape", AttributeKind::kInts, true});
  return attributes;
}

absl::StatusOr<TensorType> Pooled(const Attributes& attributes, const TensorType& x) {
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
  FUSIONLLM_RETURN_IF_ERROR(RequireRank("x", x, 4));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto kernel, Window(attributes, "kernel", 1, 1));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto stride, Window(attributes, "stride", 1, 1));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto padding, Window(attributes, "padding", 0, 0));
  // More padding would give windows that hold no pixel at all.
  if (padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2) return Refuse("padding may be at most half the kernel");
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t height, WindowOutputExtent(x.shape[1], kernel[0], stride[0], padding[0], 1));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t width, WindowOutputExtent(x.shape[2], kernel[1], stride[1], padding[1], 1));
  return F32({x.shape[0], height, width, x.shape[3]});
}

// Type of the images and of what pooling makes of them, from the attribute in_shape.
absl::StatusOr<Types> ImagesAndPooled(const Attributes& attributes) {
  FUSIONLLM_ASSIGN_OR_RETURN(Extents extents, ShapeAttribute(attributes, "in_shape", 1));
  TensorType images = F32(std::move(extents));
  FUSIONLLM_RETURN_IF_ERROR(CheckLimits(images));
  FUSIONLLM_ASSIGN_OR_RETURN(TensorType pooled, Pooled(attributes, images));
  return Types{std::move(images), std::move(pooled)};
}

double WindowSize(const Op& op) {
  double size = 1;
  for (const int64_t extent : op.attributes.Ints("kernel")) size *= static_cast<double>(extent);
  return size;
}

void AddMaxPool(std::vector<OpSchema>& schemas) {
  OpSchema forward = MakeSchema(OpKind::kMaxPool2d, OpRole::kNonParametric, OpClass::kReduction, {"x"}, {"y", "index"});
  forward.attributes = WindowAttributes(false);
  forward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const TensorType& x = InputType(graph, op, 0);
    FUSIONLLM_ASSIGN_OR_RETURN(TensorType y, Pooled(op.attributes, x));
    if (x.shape[1] > kMaxExtent / x.shape[2])
      return Refuse("input x ", x.ToString(), " has more pixels in a plane than an i32 index holds");
    TensorType index = I32(y.shape.dims());
    return Types{std::move(y), std::move(index)};
  };
  forward.flops = [](const Graph& graph, const Op& op) { return WindowSize(op) * OutputElements(graph, op); };
  schemas.push_back(std::move(forward));

  OpSchema backward = MakeBackward(OpKind::kMaxPool2dGrad, OpClass::kReduction, {"dy", "index"}, {"dx"});
  backward.attributes = WindowAttributes(true);
  backward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const Types types, ImagesAndPooled(op.attributes));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 0), types[1]));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("index", InputType(graph, op, 1), I32(types[1].shape.dims())));
    return Types{types[0]};
  };
  backward.flops = [](const Graph& graph, const Op& op) { return InputElements(graph, op); };
  schemas.push_back(std::move(backward));
}

void AddAveragePool(std::vector<OpSchema>& schemas) {
  OpSchema forward = MakeSchema(OpKind::kAvgPool2d, OpRole::kNonParametric, OpClass::kReduction, {"x"}, {"y"});
  forward.attributes = WindowAttributes(false);
  forward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(TensorType y, Pooled(op.attributes, InputType(graph, op, 0)));
    return Types{std::move(y)};
  };
  forward.flops = [](const Graph& graph, const Op& op) { return WindowSize(op) * OutputElements(graph, op); };
  schemas.push_back(std::move(forward));

  OpSchema backward = MakeBackward(OpKind::kAvgPool2dGrad, OpClass::kReduction, {"dy"}, {"dx"});
  backward.attributes = WindowAttributes(true);
  backward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const Types types, ImagesAndPooled(op.attributes));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 0), types[1]));
    return Types{types[0]};
  };
  backward.flops = [](const Graph& graph, const Op& op) { return WindowSize(op) * InputElements(graph, op); };
  schemas.push_back(std::move(backward));
}

void AddGlobalAveragePool(std::vector<OpSchema>& schemas) {
  OpSchema forward = MakeSchema(OpKind::kGlobalAvgPool, OpRole::kNonParametric, OpClass::kReduction, {"x"}, {"y"});
  forward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const TensorType& x = InputType(graph, op, 0);
    FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x));
    FUSIONLLM_RETURN_IF_ERROR(RequireRank("x", x, 4));
    return Types{F32({x.shape[0], x.shape[3]})};
  };
  forward.flops = [](const Graph& graph, const Op& op) { return InputElements(graph, op); };
  schemas.push_back(std::move(forward));

  OpSchema backward = MakeBackward(OpKind::kGlobalAvgPoolGrad, OpClass::kReduction, {"dy"}, {"dx"});
  backward.attributes = {{"height", AttributeKind::kInt, true}, {"width", AttributeKind::kInt, true}};
  backward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const TensorType& dy = InputType(graph, op, 0);
    FUSIONLLM_RETURN_IF_ERROR(RequireF32("dy", dy));
    FUSIONLLM_RETURN_IF_ERROR(RequireRank("dy", dy, 2));
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t height, PositiveInt(op.attributes, "height"));
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t width, PositiveInt(op.attributes, "width"));
    return Types{F32({dy.shape[0], height, width, dy.shape[1]})};
  };
  backward.flops = [](const Graph& graph, const Op& op) { return OutputElements(graph, op); };
  schemas.push_back(std::move(backward));
}

}  // namespace

void AddPooling(std::vector<OpSchema>& schemas) {
  AddMaxPool(schemas);
  AddAveragePool(schemas);
  AddGlobalAveragePool(schemas);
}

}  // namespace fusionllm::opdag::ops
