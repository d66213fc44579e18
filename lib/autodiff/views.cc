#include "lib/autodiff/training_graph.h"

namespace fusionllm::autodiff {

std::vector<bool> ViewsOf(const TrainingGraph& training) {
  const opdag::Graph& graph = training.graph;
  std::vector<bool> of_parameter(graph.values().size(), false);
  for (const ParameterUse& use : training.uses) of_parameter[use.gradient] = true;
  std::vector<bool> views;
  views.reserve(graph.ops().size());
  for (const opdag::Op& op : graph.ops()) {
    const bool renames = op.kind == opdag::OpKind::kReshape || op.kind == opdag::OpKind::kFlatten;
    views.push_back(renames && graph.value(op.inputs[0]).type.dtype == graph.value(op.outputs[0]).type.dtype &&
                    !of_parameter[op.inputs[0]] && !of_parameter[op.outputs[0]]);
  }
  return views;
}

}  // namespace fusionllm::autodiff
