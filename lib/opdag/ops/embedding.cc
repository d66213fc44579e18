// Token and learned position embeddings.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

const std::vector<AttributeSchema> kEmbeddingAttributes = {
    {"vocab", AttributeKind::kInt, true}, {"dim", AttributeKind::kInt, true}, {"positions", AttributeKind::kInt}};

int TableCount(const Attributes& attributes) { return attributes.Int("positions") > 0 ? 2 : 1; }

absl::StatusOr<Types> Tables(const Attributes& attributes) {
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t vocab, PositiveInt(attributes, "vocab"));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t dim, PositiveInt(attributes, "dim"));
  const int64_t positions = attributes.Int("positions");
  if (positions < 0 || positions > kMaxExtent) return Refuse("attribute 'positions' is ", positions, " and must be 0 to ", kMaxExtent);
  Types tables = {F32({vocab, dim})};
  if (positions > 0) tables.push_back(F32({positions, dim}));
  for (const TensorType& table : tables) FUSIONLLM_RETURN_IF_ERROR(CheckLimits(table));
  return tables;
}

absl::StatusOr<TensorType> Embedded(const Attributes& attributes, const TensorType& tokens) {
  if (tokens.dtype != tensor::DType::kI32 || tokens.shape.rank() != 2) {
    return Refuse("input tokens is ", tokens.ToString(), " and must be i32 of two dimensions, [batch, tokens]");
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const Types tables, Tables(attributes));
  const int64_t positions = attributes.Int("positions");
  if (positions > 0 && tokens.shape[1] > positions) {
    return Refuse("a sequence of ", tokens.shape[1], " tokens passes its ", positions, " positions");
  }
  return F32({tokens.shape[0], tokens.shape[1], tables[0].shape[1]});
}

}  // namespace

void AddEmbedding(std::vector<OpSchema>& schemas) {
  OpSchema forward = MakeSchema(OpKind::kEmbedding, OpRole::kParametric, OpClass::kGather, {"tokens"}, {"y"});
  forward.parameters = {"wte", "wpe"};
  forward.optional_parameters = 1;
  forward.attributes = kEmbeddingAttributes;
  forward.parameter_count = TableCount;
  forward.parameter_types = [](const Attributes& attributes, const Types&) { return Tables(attributes); };
  forward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(TensorType y, Embedded(op.attributes, InputType(graph, op, 0)));
    return Types{std::move(y)};
  };
  forward.flops = [](const Graph& graph, const Op& op) { return OutputElements(graph, op); };
  // Rows that tokens name, not whole tables.
  forward.bytes_read = [](const Graph& graph, const Op& op) {
    const TensorType rows = F32(OutputType(graph, op).shape.dims());  // the tables are f32, whatever the output is
    return static_cast<int64_t>(InputType(graph, op, 0).bytes() + TableCount(op.attributes) * rows.bytes());
  };
  schemas.push_back(std::move(forward));

  OpSchema backward = MakeBackward(OpKind::kEmbeddingGrad, OpClass::kGather, {"tokens", "dy"}, {"dwte", "dwpe"});
  backward.attributes = kEmbeddingAttributes;
  backward.output_count = TableCount;
  backward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const TensorType y, Embedded(op.attributes, InputType(graph, op, 0)));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 1), y));
    return Tables(op.attributes);
  };
  backward.flops = [](const Graph& graph, const Op& op) {
    return static_cast<double>(TableCount(op.attributes)) * static_cast<double>(InputType(graph, op, 1).elements());
  };
  schemas.push_back(std::move(backward));
}

}  // namespace fusionllm::opdag::ops
