// Maps of one tensor, broadcasting maps of two, dropout, and their gradients.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

// Nominal operations per element: one for an arithmetic operation, eight for a transcendental function.
constexpr double kArithmetic = 1;
constexpr double kTranscendental = 8;

absl::StatusOr<Types> SameAsFirst(const Graph& graph, const Op& op) {
  const TensorType& first = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", first));
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    FUSIONLLM_RETURN_IF_ERROR(RequireSame("0", first, absl::StrCat(i), InputType(graph, op, static_cast<int>(i))));
  }
  return Types{first};
}

absl::StatusOr<Types> InferGelu(const Graph& graph, const Op& op) {
  const std::string approximate = op.attributes.Text("approximate", "tanh");
  if (approximate != "tanh" && approximate != "none")
    return Refuse("attribute 'approximate' is \"", approximate, "\"; \"tanh\" or \"none\"");
  return SameAsFirst(graph, op);
}

absl::StatusOr<Types> InferDropout(const Graph& graph, const Op& op) {
  const double rate = op.attributes.Number("rate");
  if (!(rate >= 0 && rate < 1)) return Refuse("attribute 'rate' is ", rate, " and must be at least 0 and below 1");
  return SameAsFirst(graph, op);
}

absl::StatusOr<Types> InferBroadcast(const Graph& graph, const Op& op) {
  const TensorType& a = InputType(graph, op, 0);
  const TensorType& b = InputType(graph, op, 1);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("a", a));
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("b", b));
  absl::StatusOr<tensor::Shape> shape = Broadcast(a.shape, b.shape);
  if (!shape.ok()) {
    return Refuse(shape.status().message(), ": a is ", graph.value(op.inputs[0]).name, ", b is ", graph.value(op.inputs[1]).name);
  }
  return Types{{tensor::DType::kF32, *std::move(shape)}};
}

std::function<double(const Graph&, const Op&)> PerElement(double operations) {
  return [operations](const Graph& graph, const Op& op) { return operations * OutputElements(graph, op); };
}

OpSchema Unary(OpKind kind, double operations) {
  OpSchema schema = MakeSchema(kind, OpRole::kNonParametric, OpClass::kElementwise, {"x"}, {"y"});
  schema.infer = SameAsFirst;
  schema.flops = PerElement(operations);
  return schema;
}

OpSchema UnaryGrad(OpKind kind, std::vector<std::string> inputs, double operations) {
  OpSchema schema = MakeBackward(kind, OpClass::kElementwise, std::move(inputs), {"dx"});
  schema.infer = SameAsFirst;
  schema.flops = PerElement(operations);
  return schema;
}

}  // namespace

void AddElementwise(std::vector<OpSchema>& schemas) {
  for (const OpKind kind : {OpKind::kRelu, OpKind::kNeg, OpKind::kSquare}) schemas.push_back(Unary(kind, kArithmetic));
  for (const OpKind kind : {OpKind::kTanh, OpKind::kSigmoid, OpKind::kExp, OpKind::kLog, OpKind::kSqrt}) {
    schemas.push_back(Unary(kind, kTranscendental));
  }
  for (const OpKind kind : {OpKind::kAdd, OpKind::kSub, OpKind::kMul, OpKind::kDiv}) {
    OpSchema schema = MakeSchema(kind, OpRole::kNonParametric, OpClass::kElementwise, {"a", "b"}, {"y"});
    schema.infer = InferBroadcast;
    schema.flops = PerElement(kArithmetic);
    schemas.push_back(std::move(schema));
  }

  OpSchema gelu = Unary(OpKind::kGelu, kTranscendental);
  gelu.attributes = {{"approximate", AttributeKind::kText}};
  gelu.infer = InferGelu;
  OpSchema gelu_grad = UnaryGrad(OpKind::kGeluGrad, {"x", "dy"}, 2 * kTranscendental);
  gelu_grad.attributes = gelu.attributes;
  gelu_grad.infer = InferGelu;
  schemas.push_back(std::move(gelu));
  schemas.push_back(std::move(gelu_grad));

  schemas.push_back(UnaryGrad(OpKind::kReluGrad, {"y", "dy"}, kArithmetic));
  schemas.push_back(UnaryGrad(OpKind::kTanhGrad, {"y", "dy"}, 3 * kArithmetic));
  schemas.push_back(UnaryGrad(OpKind::kSigmoidGrad, {"y", "dy"}, 3 * kArithmetic));

  OpSchema scale = Unary(OpKind::kScale, 2 * kArithmetic);
  scale.attributes = {{"factor", AttributeKind::kNumber}, {"shift", AttributeKind::kNumber}};
  schemas.push_back(std::move(scale));

  OpSchema dropout = Unary(OpKind::kDropout, kTranscendental);
  dropout.attributes = {{"rate", AttributeKind::kNumber, true}, {"name", AttributeKind::kText, false, true}};
  dropout.infer = InferDropout;
  OpSchema dropout_grad = UnaryGrad(OpKind::kDropoutGrad, {"dy"}, kTranscendental);
  dropout_grad.attributes = dropout.attributes;
  dropout_grad.infer = InferDropout;
  schemas.push_back(std::move(dropout));
  schemas.push_back(std::move(dropout_grad));
}

}  // namespace fusionllm::opdag::ops
