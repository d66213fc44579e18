#include "lib/scheduler/graph_request.h"

#include "absl/strings/str_format.h"
#include "lib/autodiff/recompute_blocks.h"

namespace fusionllm::scheduler {

absl::Status AddGraph(const autodiff::TrainingGraph& training, const estimator::GraphCosts& costs,
                      const std::vector<std::vector<estimator::OpSeconds>>& seconds_by_class, PlanRequest& request) {
  for (size_t c = 0; c < seconds_by_class.size(); ++c) {
    if (seconds_by_class[c].size() == costs.ops.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("device class %d prices %d ops of %d", c, seconds_by_class[c].size(), costs.ops.size()));
  }
  const opdag::Graph& graph = training.graph;
  request.ops.clear();
  request.values.clear();
  request.tied.clear();
  const autodiff::RecomputeBlocks blocks = autodiff::RecomputeBlocksOf(training, autodiff::ViewsOf(training));
  for (const estimator::OpCosts& op : costs.ops) {
    OpNode node{.name = graph.op(op.op).name,
                .placeholder = op.placeholder,
                .flops = op.forward_flops + op.backward_flops,
                .parameter_bytes = op.parameter_bytes,
                .gradient_bytes = op.gradient_bytes,
                .optimizer_bytes = op.optimizer_bytes,
                .workspace_bytes = op.workspace_bytes,
                .block = blocks.of_op[op.op],
                .runs_again = blocks.runs_again[op.op]};
    for (const std::vector<estimator::OpSeconds>& seconds : seconds_by_class) {
      node.forward_s.push_back(seconds[op.op].forward_s);
      node.backward_s.push_back(seconds[op.op].backward_s);
      node.update_s.push_back(seconds[op.op].update_s);
      node.weights_s.push_back(seconds[op.op].weights_s);
    }
    request.ops.push_back(std::move(node));
  }
  for (const estimator::ValueCosts& value : costs.values) {
    request.values.push_back({.name = graph.value(value.value).name,
                              .producer = value.producer,
                              .consumers = value.consumers,
                              .kept_by = value.kept_by,
                              .bytes = value.bytes,
                              .differentiable = value.differentiable,
                              .lossless_only = value.lossless_only,
                              .bytes_of_element = static_cast<int64_t>(tensor::SizeOf(value.dtype)),
                              .kind = value.kind});
  }
  for (const estimator::SharedParameterCosts& shared : costs.shared) {
    request.tied.push_back({.name = graph.parameter(shared.parameter).name,
                            .ops = shared.ops,
                            .bytes = shared.bytes,
                            .optimizer_bytes = shared.optimizer_bytes});
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::scheduler
