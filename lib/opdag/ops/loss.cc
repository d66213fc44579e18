// Losses: scalars that training minimises.
#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {
namespace {

// Labels have the extents of the logits without the last one.
absl::StatusOr<int64_t> Rows(const TensorType& logits, const TensorType& labels) {
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("logits", logits, 1));
  Extents wanted = logits.shape.dims();
  wanted.pop_back();
  FUSIONLLM_RETURN_IF_ERROR(RequireType("labels", labels, I32(std::move(wanted))));
  return logits.shape.rows();
}

OpSchema CrossEntropy() {
  OpSchema schema =
      MakeSchema(OpKind::kCrossEntropy, OpRole::kLoss, OpClass::kReduction, {"logits", "labels"}, {"loss", "correct", "lse", "counted"});
  schema.attributes = {{"ignore_index", AttributeKind::kInt}};
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t rows, Rows(InputType(graph, op, 0), InputType(graph, op, 1)));
    return Types{F32({}), F32({}), F32({rows}), F32({})};
  };
  schema.flops = [](const Graph& graph, const Op& op) { return 10 * InputElements(graph, op); };
  return schema;
}

OpSchema CrossEntropyGrad() {
  OpSchema schema = MakeBackward(OpKind::kCrossEntropyGrad, OpClass::kReduction, {"logits", "labels", "lse", "dloss"}, {"dlogits"});
  schema.attributes = {{"ignore_index", AttributeKind::kInt}};
  schema.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t rows, Rows(InputType(graph, op, 0), InputType(graph, op, 1)));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("lse", InputType(graph, op, 2), F32({rows})));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dloss", InputType(graph, op, 3), F32({})));
    return Types{InputType(graph, op, 0)};
  };
  schema.flops = [](const Graph& graph, const Op& op) { return 10 * InputElements(graph, op); };
  return schema;
}

absl::Status CheckMse(const Graph& graph, const Op& op) {
  FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", InputType(graph, op, 0)));
  return RequireSame("x", InputType(graph, op, 0), "target", InputType(graph, op, 1));
}

}  // namespace

void AddLoss(std::vector<OpSchema>& schemas) {
  schemas.push_back(CrossEntropy());
  schemas.push_back(CrossEntropyGrad());

  OpSchema mse = MakeSchema(OpKind::kMse, OpRole::kLoss, OpClass::kReduction, {"x", "target"}, {"loss"});
  mse.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_RETURN_IF_ERROR(CheckMse(graph, op));
    return Types{F32({})};
  };
  mse.flops = [](const Graph& graph, const Op& op) { return 3 * InputElements(graph, op); };
  schemas.push_back(std::move(mse));

  OpSchema grad = MakeBackward(OpKind::kMseGrad, OpClass::kElementwise, {"x", "target", "dloss"}, {"dx"});
  grad.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
    FUSIONLLM_RETURN_IF_ERROR(CheckMse(graph, op));
    FUSIONLLM_RETURN_IF_ERROR(RequireType("dloss", InputType(graph, op, 2), F32({})));
    return Types{InputType(graph, op, 0)};
  };
  grad.flops = [](const Graph& graph, const Op& op) { return 2 * InputElements(graph, op); };
  schemas.push_back(std::move(grad));
}

}  // namespace fusionllm::opdag::ops
