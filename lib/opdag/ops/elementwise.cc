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
  FUSIONLLM_RETURN_IF_ERROR(WantF32("x", first));
  for (size_t i = 1; i < op.inputs.size(); ++i) {
    FUSIONLLM_RETURN_IF_ERROR(WantSame("0", first, absl::StrCat(i), InputType(graph, op, static_cast<int>(i))));
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
  FUSIONLLM_RETURN_IF_ERROR(WantF32("a", a));
  FUSIONLLM_RETURN_IF_ERROR(WantF32("b", b));
  absl::StatusOr<tensor::Shape> shape = Broadcast(a.shape, b.shape);
  if (!shape.ok()) {
    return Refuse(shape.status().message(), ": a is ", graph.value(op.inputs[0]).name, ", b is ", graph.value(op.inputs[1]).name);
  }
  return Types{{tensor::DType::kF32, *std::move(shape)}};
}

std::function<double(const Graph&, const Op&)> PerElement(double operations) {
  return [operations](const Graph& graph, const Op& op) { return operations * OutputElements(graph, op); };
}

OpSchema Unary(absl::string_view type, double operations) {
  OpSchema schema = MakeSchema(type, OpKind::kNonParametric, OpClass::kElementwise, {"x"}, {"y"});
  schema.infer = SameAsFirst;
  schema.flops = PerElement(operations);
  return schema;
}

OpSchema UnaryGrad(absl::string_view type, std::vector<std::string> inputs, double operations) {
  OpSchema schema = MakeBackward(type, OpClass::kElementwise, std::move(inputs), {"dx"});
  schema.infer = SameAsFirst;
  schema.flops = PerElement(operations);
  return schema;
}

}  // namespace

void AddElementwise(std::vector<OpSchema>& schemas) {
  for (const char* type : {"relu", "neg", "square"}) schemas.push_back(Unary(type, kArithmetic));
  for (const char* type : {"tanh", "sigmoid", "exp", "log", "sqrt"}) schemas.push_back(Unary(type, kTranscendental));
  for (const char* type : {"add", "sub", "mul", "div"}) {
    OpSchema schema = MakeSchema(type, OpKind::kNonParametric, OpClass::kElementwise, {"a", "b"}, {"y"});
    schema.infer = InferBroadcast;
    schema.flops = PerElement(kArithmetic);
    schemas.push_back(std::move(schema));
  }

  OpSchema gelu = Unary("gelu", kTranscendental);
  gelu.attributes = {{"approximate", AttributeKind::kText}};
  gelu.infer = InferGelu;
  OpSchema gelu_grad = UnaryGrad("gelu_grad", {"x", "dy"}, 2 * kTranscendental);
  gelu_grad.attributes = gelu.attributes;
  gelu_grad.infer = InferGelu;
  schemas.push_back(std::move(gelu));
  schemas.push_back(std::move(gelu_grad));

  schemas.push_back(UnaryGrad("relu_grad", {"y", "dy"}, kArithmetic));
  schemas.push_back(UnaryGrad("tanh_grad", {"y", "dy"}, 3 * kArithmetic));
  schemas.push_back(UnaryGrad("sigmoid_grad", {"y", "dy"}, 3 * kArithmetic));

  OpSchema scale = Unary("scale", 2 * kArithmetic);
  scale.attributes = {{"factor", AttributeKind::kNumber}, {"shift", AttributeKind::kNumber}};
  schemas.push_back(std::move(scale));

  OpSchema dropout = Unary("dropout", kTranscendental);
  dropout.attributes = {{"rate", AttributeKind::kNumber, true}, {"name", AttributeKind::kText, false, true}};
  dropout.infer = InferDropout;
  OpSchema dropout_grad = UnaryGrad("dropout_grad", {"dy"}, kTranscendental);
  dropout_grad.attributes = dropout.attributes;
  dropout_grad.infer = InferDropout;
  schemas.push_back(std::move(dropout));
  schemas.push_back(std::move(dropout_grad));
}

}  // namespace fusionllm::opdag::ops
