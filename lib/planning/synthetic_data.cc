#include "lib/planning/synthetic_data.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"

namespace fusionllm::planning {
namespace {

// How many classes the op tells apart in an input of ids; 1 where that is not known, since 0 is always in range.
int64_t ClassesOf(const opdag::Graph& graph, const opdag::Op& op) {
  if (op.kind == opdag::OpKind::kEmbedding) return std::max<int64_t>(1, graph.parameter(op.parameters[0]).type.shape.dims().front());
  if (op.kind == opdag::OpKind::kCrossEntropy) return std::max<int64_t>(1, graph.value(op.inputs[0]).type.shape.dims().back());
  return 1;
}

}  // namespace

SyntheticData::SyntheticData(const opdag::Graph& graph) {
  for (const opdag::Op& op : graph.ops()) {
    if (op.kind != opdag::OpKind::kPlaceholder) continue;
    int64_t classes = std::numeric_limits<int64_t>::max();
    const auto& consumers = graph.value(op.outputs[0]).consumers;
    for (const opdag::OpId consumer : consumers) {
      if (graph.op(consumer).forward_op == opdag::kNone) classes = std::min(classes, ClassesOf(graph, graph.op(consumer)));
    }
    classes_[op.name] = consumers.empty() ? 1 : classes;
  }
}

absl::Status SyntheticData::Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) {
  const base::CounterRng rng(1, absl::StrCat(placeholder.name, "/", step, "/", micro_batch));
  const bool ids = out.type.dtype == tensor::DType::kI32;
  for (int64_t i = 0; i < out.type.elements(); ++i) {
    if (ids) {
      out.as<int32_t>()[i] = static_cast<int32_t>(rng.Below(i, classes_.at(placeholder.name)));
    } else {
      out.f32()[i] = 2 * rng.Uniform(i) - 1;
    }
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::planning
