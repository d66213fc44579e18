// Fused multi-head self-attention over a packed [q | k | v] projection.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

const std::vector<AttributeSchema> kAttentionAttributes = {{"heads", AttributeKind::kInt, true}, {"causal", AttributeKind::kBool}};

absl::StatusOr<Types> Infer(const Graph& graph, const Op& op) {
  const TensorType& qkv = InputType(graph, op, 0);
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("qkv", qkv));
  FUSIONLLM_RETURN_IF_ERROR(RequireRank("qkv", qkv, 3));
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t heads, PositiveInt(op.attributes, "heads"));
  const int64_t packed = qkv.shape[2];
  if (packed % 3 != 0 || packed / 3 % heads != 0) {
    return Refuse("input qkv ", qkv.ToString(), " must pack q, k and v of equal width, a multiple of ", heads,
                  " heads, in its last dimension");
  }
  return Types{F32({qkv.shape[0], qkv.shape[1], packed / 3}), F32({qkv.shape[0], heads, qkv.shape[1]})};
}

// Two products of T x T x D per sample; a causal mask needs (T + 1) / 2T of them.
double ForwardFlops(const TensorType& qkv, const Op& op) {
  const double batch = static_cast<double>(qkv.shape[0]);
  const double tokens = static_cast<double>(qkv.shape[1]);
  const double width = static_cast<double>(qkv.shape[2]) / 3;
  const double pairs = op.attributes.Bool("causal", true) ? tokens * (tokens + 1) / 2 : tokens * tokens;
  return batch * pairs * (4 * width + 6 * static_cast<double>(op.attributes.Int("heads")));
}

}  // namespace

void AddAttention(std::vector<OpSchema>& schemas) {
  OpSchema forward = MakeSchema(OpKind::kAttention, OpRole::kNonParametric, OpClass::kAttention, {"qkv"}, {"y", "lse"});
  forward.attributes = kAttentionAttributes;
  forward.infer = Infer;
  forward.flops = [](const Graph& graph, const Op& op) { return ForwardFlops(InputType(graph, op, 0), op); };
  schemas.push_back(std::move(forward));

  OpSchema backward = MakeBackward(OpKind::kAttentionGrad, OpClass::kAttention, {"qkv", "y", "lse", "dy"}, {"dqkv"});
  backward.attributes = kAttentionAttributes;
  backward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const Types forward_types, Infer(graph, op));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("y", InputType(graph, op, 1), forward_types[0]));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("lse", InputType(graph, op, 2), forward_types[1]));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dy", InputType(graph, op, 3), forward_types[0]));
    return Types{InputType(graph, op, 0)};
  };
  // Scores once more, then dV, dP, dQ, dK: five products for the forward's two.
  backward.flops = [](const Graph& graph, const Op& op) { return 2.5 * ForwardFlops(InputType(graph, op, 0), op); };
  schemas.push_back(std::move(backward));
}

}  // namespace fusionllm::opdag::ops
