// Dense layers and matrix products.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

int LinearInputs(const Attributes& attributes) { return attributes.Bool("bias", true) ? 2 : 1; }

absl::StatusOr<TensorType> Weight(const Attributes& attributes, int64_t in, int64_t out) {
  const std::string layout = attributes.Text("layout", "io");
  if (layout != "io" && layout != "oi") return Refuse("attribute 'layout' is \"", layout, "\"; \"io\" ([in, out]) or \"oi\" ([out, in])");
  TensorType weight = layout == "io" ? F32({in, out}) : F32({out, in});
  FUSIONLLM_RETURN_IF_ERROR(CheckLimits(weight));
  return weight;
}

TensorType WithLastExtent(const TensorType& type, int64_t extent) {
  Extents extents = type.shape.dims();
  extents.back() = extent;
  return F32(std::move(extents));
}

double ProductFlops(double rows, int64_t in, int64_t out) { return 2 * rows * static_cast<double>(in) * static_cast<double>(out); }

OpSchema Linear() {
  OpSchema schema = MakeSchema(OpKind::kLinear, OpRole::kParametric, OpClass::kMatmul, {"x"}, {"y"});
  schema.parameters = {"weight", "bias"};
  schema.optional_parameters = 1;
  schema.attributes = {{"out", AttributeKind::kInt, true}, {"layout", AttributeKind::kText}, {"bias", AttributeKind::kBool}};
  schema.parameter_count = LinearInputs;
  schema.parameter_types = [](const Attributes& attributes, const Types& inputs) -> absl::StatusOr<Types> {
    FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", inputs[0], 1));
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t out, PositiveInt(attributes, "out"));
    FUSIONLLM_ASSIGN_OR_RETURN(TensorType weight, Weight(attributes, inputs[0].shape.dim(-1), out));
    Types types = {std::move(weight)};
    if (LinearInputs(attributes) == 2) types.push_back(F32({out}));
    return types;
  };
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    return Types{WithLastExtent(InputType(graph, op, 0), op.attributes.Int("out"))};  // parameter_types has checked both
  };
  schema.flops = [](const Graph& graph, const Op& op) {
    const tensor::Shape& x = InputType(graph, op, 0).shape;
    return ProductFlops(static_cast<double>(x.rows()), x.dim(-1), op.attributes.Int("out"));
  };
  return schema;
}

OpSchema LinearGradInput() {
  OpSchema schema = MakeBackward(OpKind::kLinearGradInput, OpClass::kMatmul, {"dy"}, {"dx"});
  schema.parameters = {"weight"};
  schema.attributes = {{"in", AttributeKind::kInt, true}, {"layout", AttributeKind::kText}};
  schema.parameter_types = [](const Attributes& attributes, const Types& inputs) -> absl::StatusOr<Types> {
    FUSIONLLM_RETURN_IF_ERROR(RequireF32("dy", inputs[0], 1));
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t in, PositiveInt(attributes, "in"));
    FUSIONLLM_ASSIGN_OR_RETURN(TensorType weight, Weight(attributes, in, inputs[0].shape.dim(-1)));
    return Types{std::move(weight)};
  };
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    return Types{WithLastExtent(InputType(graph, op, 0), op.attributes.Int("in"))};
  };
  schema.flops = [](const Graph& graph, const Op& op) {
    const tensor::Shape& dy = InputType(graph, op, 0).shape;
    return ProductFlops(static_cast<double>(dy.rows()), op.attributes.Int("in"), dy.dim(-1));
  };
  return schema;
}

OpSchema LinearGradWeight() {
  OpSchema schema = MakeBackward(OpKind::kLinearGradWeight, OpClass::kMatmul, {"x", "dy"}, {"dweight", "dbias"});
  schema.attributes = {{"layout", AttributeKind::kText}, {"bias", AttributeKind::kBool}};
  schema.output_count = LinearInputs;
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const TensorType& x = InputType(graph, op, 0);
    const TensorType& dy = InputType(graph, op, 1);
    FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", x, 1));
    FUSIONLLM_RETURN_IF_ERROR(RequireF32("dy", dy, 1));
    const int64_t out = dy.shape.dim(-1);
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", dy, WithLastExtent(x, out)));
    FUSIONLLM_ASSIGN_OR_RETURN(TensorType weight, Weight(op.attributes, x.shape.dim(-1), out));
    Types types = {std::move(weight)};
    if (LinearInputs(op.attributes) == 2) types.push_back(F32({out}));
    return types;
  };
  schema.flops = [](const Graph& graph, const Op& op) {
    const tensor::Shape& x = InputType(graph, op, 0).shape;
    return ProductFlops(static_cast<double>(x.rows()), x.dim(-1), InputType(graph, op, 1).shape.dim(-1));
  };
  return schema;
}

absl::StatusOr<Types> InferMatmul(const Graph& graph, const Op& op) {
  const TensorType& a = InputType(graph, op, 0);
  const TensorType& b = InputType(graph, op, 1);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("a", a, 2));
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("b", b, 2));
  const bool transpose_a = op.attributes.Bool("transpose_a");
  const bool transpose_b = op.attributes.Bool("transpose_b");
  const int64_t inner_a = a.shape.dim(transpose_a ? -2 : -1);
  const int64_t inner_b = b.shape.dim(transpose_b ? -1 : -2);
  Extents extents = a.shape.dims();
  bool fits = inner_a == inner_b;
  if (b.shape.rank() > 2) {
    fits = fits && a.shape.rank() == b.shape.rank();
    for (int i = 0; fits && i + 2 < a.shape.rank(); ++i) fits = a.shape[i] == b.shape[i];
  }
  if (!fits) {
    return Refuse("a ", a.ToString(), transpose_a ? " (transposed)" : "", " and b ", b.ToString(), transpose_b ? " (transposed)" : "",
                  " do not multiply: inner extents must agree, and leading ones too unless b has two dimensions");
  }
  extents[extents.size() - 2] = a.shape.dim(transpose_a ? -1 : -2);
  extents[extents.size() - 1] = b.shape.dim(transpose_b ? -2 : -1);
  return Types{F32(std::move(extents))};
}

OpSchema Matmul() {
  OpSchema schema = MakeSchema(OpKind::kMatmul, OpRole::kNonParametric, OpClass::kMatmul, {"a", "b"}, {"y"});
  schema.attributes = {{"transpose_a", AttributeKind::kBool}, {"transpose_b", AttributeKind::kBool}};
  schema.infer = InferMatmul;
  schema.flops = [](const Graph& graph, const Op& op) {
    const int64_t inner = InputType(graph, op, 0).shape.dim(op.attributes.Bool("transpose_a") ? -2 : -1);
    return 2 * OutputElements(graph, op) * static_cast<double>(inner);
  };
  return schema;
}

}  // namespace

void AddLinear(std::vector<OpSchema>& schemas) {
  schemas.push_back(Linear());
  schemas.push_back(LinearGradInput());
  schemas.push_back(LinearGradWeight());
  schemas.push_back(Matmul());
}

}  // namespace fusionllm::opdag::ops
