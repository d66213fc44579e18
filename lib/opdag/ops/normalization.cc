// Layer norm and batch norm.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

absl::Status CheckEpsilon(const Attributes& attributes) {
  const double epsilon = attributes.Number("epsilon", 1e-5);
  if (!(epsilon >= 0 && epsilon <= 1)) return Refuse("attribute 'epsilon' is ", epsilon, " and must be 0 to 1");
  return absl::OkStatus();
}

absl::StatusOr<Types> ChannelVectors(const Types& inputs, int count) {
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", inputs[0], 1));
  return Types(count, F32({inputs[0].shape.dim(-1)}));
}

// dx, dweight, dbias from (x, dy, mean, rstd), where the statistics have `extent` elements.
absl::StatusOr<Types> InferGrad(const Graph& graph, const Op& op, int64_t extent) {
  const TensorType& x = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(CheckEpsilon(op.attributes));
  FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 1), x));
  FUSIONLLM_RETURN_IF_ERROR(RequireType("mean", InputType(graph, op, 2), F32({extent})));
  FUSIONLLM_RETURN_IF_ERROR(RequireType("rstd", InputType(graph, op, 3), F32({extent})));
  const TensorType channels = F32({x.shape.dim(-1)});
  return Types{x, channels, channels};
}

OpSchema NormGrad(OpKind kind) {
  OpSchema schema = MakeBackward(kind, OpClass::kNormalization, {"x", "dy", "mean", "rstd"}, {"dx", "dweight", "dbias"});
  schema.parameters = {"weight"};
  schema.parameter_types = [](const Attributes&, const Types& inputs) { return ChannelVectors(inputs, 1); };
  schema.flops = [](const Graph& graph, const Op& op) { return 14 * InputElements(graph, op); };
  return schema;
}

void AddLayerNorm(std::vector<OpSchema>& schemas) {
  OpSchema forward = MakeSchema(OpKind::kLayerNorm, OpRole::kParametric, OpClass::kNormalization, {"x"}, {"y", "mean", "rstd"});
  forward.parameters = {"weight", "bias"};
  forward.attributes = {{"epsilon", AttributeKind::kNumber}};
  forward.parameter_types = [](const Attributes&, const Types& inputs) { return ChannelVectors(inputs, 2); };
  forward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const TensorType& x = InputType(graph, op, 0);
    FUSIONLLM_RETURN_IF_ERROR(CheckEpsilon(op.attributes));
    const TensorType statistics = F32({x.shape.rows()});
    return Types{x, statistics, statistics};
  };
  forward.flops = [](const Graph& graph, const Op& op) { return 8 * InputElements(graph, op); };
  schemas.push_back(std::move(forward));

  OpSchema backward = NormGrad(OpKind::kLayerNormGrad);
  backward.infer = [](const Graph& graph, const Op& op) { return InferGrad(graph, op, InputType(graph, op, 0).shape.rows()); };
  schemas.push_back(std::move(backward));
}

void AddBatchNorm(std::vector<OpSchema>& schemas) {
  OpSchema forward = MakeSchema(OpKind::kBatchNorm, OpRole::kParametric, OpClass::kNormalization, {"x"}, {"y", "mean", "rstd"});
  forward.parameters = {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"};
  forward.attributes = {{"epsilon", AttributeKind::kNumber}, {"momentum", AttributeKind::kNumber}};
  forward.parameter_types = [](const Attributes&, const Types& inputs) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(Types types, ChannelVectors(inputs, 4));
    types.push_back({tensor::DType::kI64, {}});
    return types;
  };
  forward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    const TensorType& x = InputType(graph, op, 0);
    FUSIONLLM_RETURN_IF_ERROR(CheckEpsilon(op.attributes));
    const double momentum = op.attributes.Number("momentum", 0.1);
    if (!(momentum >= 0 && momentum <= 1)) return Refuse("attribute 'momentum' is ", momentum, " and must be 0 to 1");
    const TensorType statistics = F32({x.shape.dim(-1)});
    return Types{x, statistics, statistics};
  };
  forward.flops = [](const Graph& graph, const Op& op) { return 8 * InputElements(graph, op); };
  schemas.push_back(std::move(forward));

  OpSchema backward = NormGrad(OpKind::kBatchNormGrad);
  backward.infer = [](const Graph& graph, const Op& op) { return InferGrad(graph, op, InputType(graph, op, 0).shape.dim(-1)); };
  schemas.push_back(std::move(backward));
}

}  // namespace

void AddNormalization(std::vector<OpSchema>& schemas) {
  AddLayerNorm(schemas);
  AddBatchNorm(schemas);
}

}  // namespace fusionllm::opdag::ops
