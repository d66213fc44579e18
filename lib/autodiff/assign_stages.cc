#include "lib/autodiff/training_graph.h"

namespace fusionllm::autodiff {
namespace {

using opdag::kNone;

// A step of a gradient fold adds two gradients of the value it yields a gradient of; no rule makes such an op.
bool IsFoldAdd(const TrainingGraph& training, const opdag::Op& op) {
  if (op.kind != opdag::OpKind::kAdd) return false;
  const opdag::ValueId value = training.differentiates[op.outputs[0]];
  return value != kNone && training.differentiates[op.inputs[0]] == value && training.differentiates[op.inputs[1]] == value;
}

}  // namespace

std::vector<int> AssignStages(const TrainingGraph& training, const std::vector<int>& forward_stage_of_op) {
  const opdag::Graph& graph = training.graph;
  std::vector<int> stage_of_op(forward_stage_of_op.begin(), forward_stage_of_op.begin() + training.forward_ops);
  stage_of_op.reserve(graph.ops().size());
  const auto stage_of_value = [&](opdag::ValueId value) { return stage_of_op[graph.value(value).producer]; };
  for (size_t id = training.forward_ops; id < graph.ops().size(); ++id) {
    const opdag::Op& op = graph.ops()[id];
    int stage = stage_of_op[op.forward_op];
    if (IsFoldAdd(training, op)) {
      const int left = stage_of_value(op.inputs[0]);
      const int right = stage_of_value(op.inputs[1]);
      stage = left == right ? left : stage_of_value(training.differentiates[op.outputs[0]]);
    }
    stage_of_op.push_back(stage);
  }
  return stage_of_op;
}

}  // namespace fusionllm::autodiff
