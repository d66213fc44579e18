#include "lib/workload/input_limits.h"

#include <algorithm>
#include <string>

namespace fusionllm::workload {
namespace {

void Lower(int64_t& limit, int64_t bound) { limit = limit == 0 ? bound : std::min(limit, bound); }

}  // namespace

InputLimits InputLimitsOf(const opdag::Graph& graph) {
  InputLimits limits;
  const auto lower = [&](opdag::ValueId ids, int64_t bound) {
    const opdag::Op& origin = graph.op(graph.value(ids).producer);
    if (origin.kind != opdag::OpKind::kPlaceholder) return;
    const std::string role = origin.attributes.Text("role");
    if (role == "tokens") Lower(limits.tokens, bound);
    if (role == "labels") Lower(limits.labels, bound);
  };
  for (const opdag::Op& op : graph.ops()) {
    if (op.kind == opdag::OpKind::kPlaceholder && op.attributes.Text("role") == "images") {
      const tensor::Shape& shape = graph.value(op.outputs[0]).type.shape;
      if (shape.rank() == 4) limits.image_channels = shape.dim(-1);
    }
    if (op.kind == opdag::OpKind::kEmbedding) lower(op.inputs[0], op.attributes.Int("vocab"));
    if (op.kind == opdag::OpKind::kCrossEntropy) {
      const int64_t classes = graph.value(op.inputs[0]).type.shape.dim(-1);
      if (op.attributes.Int("ignore_index") < classes) lower(op.inputs[1], classes);
    }
  }
  return limits;
}

}  // namespace fusionllm::workload
