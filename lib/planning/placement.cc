#include "lib/planning/placement.h"

#include "absl/strings/str_format.h"

namespace fusionllm::planning {

absl::StatusOr<std::vector<int>> PlacementOf(const wire::PlanDocument& plan, const autodiff::TrainingGraph& training) {
  std::vector<int> stage_of_op(training.forward_ops, opdag::kNone);
  for (const wire::PlanStage& stage : plan.stages) {
    for (const std::string& name : stage.ops) {
      const opdag::OpId op = training.graph.FindOp(name);
      if (op == opdag::kNone || op >= training.forward_ops) {
        return absl::InvalidArgumentError(absl::StrFormat("stage %d of the plan has op '%s', which the graph has not", stage.index, name));
      }
      stage_of_op[op] = stage.index;
    }
  }
  for (opdag::OpId op = 0; op < training.forward_ops; ++op) {
    if (stage_of_op[op] == opdag::kNone) {
      return absl::InvalidArgumentError(absl::StrFormat("the plan has no stage for op '%s'", training.graph.op(op).name));
    }
  }
  return autodiff::Place(training, stage_of_op);
}

}  // namespace fusionllm::planning
