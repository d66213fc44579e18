// Softmax and its logarithm over the last axis.
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/opdag/ops/families.h"
#include "lib/opdag/ops/shape_rules.h"

namespace fusionllm::opdag::ops {

void AddSoftmax(std::vector<OpSchema>& schemas) {
  for (const auto& [kind, grad] :
       {std::pair(OpKind::kSoftmax, OpKind::kSoftmaxGrad), std::pair(OpKind::kLogSoftmax, OpKind::kLogSoftmaxGrad)}) {
    OpSchema forward = MakeSchema(kind, OpRole::kNonParametric, OpClass::kNormalization, {"x"}, {"y"});
    forward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
      FUSIONLLM_RETURN_IF_ERROR(RequireF32("x", InputType(graph, op, 0), 1));
      return Types{InputType(graph, op, 0)};
    };
    forward.flops = [](const Graph& graph, const Op& op) { return 11 * InputElements(graph, op); };
    schemas.push_back(std::move(forward));

    OpSchema backward = MakeBackward(grad, OpClass::kNormalization, {"y", "dy"}, {"dx"});
    backward.infer = [](const Graph& graph, const Op& op) -> absl::StatusOr<Types> {
      FUSIONLLM_RETURN_IF_ERROR(RequireF32("y", InputType(graph, op, 0), 1));
      FUSIONLLM_RETURN_IF_ERROR(RequireSame("y", InputType(graph, op, 0), "dy", InputType(graph, op, 1)));
      return Types{InputType(graph, op, 0)};
    };
    backward.flops = [](const Graph& graph, const Op& op) { return 4 * InputElements(graph, op); };
    schemas.push_back(std::move(backward));
  }
}

}  // namespace fusionllm::opdag::ops
