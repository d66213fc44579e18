#include "lib/runtime/target_weights.h"

#include <algorithm>
#include <optional>

#include "lib/base/status_macros.h"
#include "lib/opdag/target_weights.h"
#include "lib/runtime/evaluation_pass.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {

absl::StatusOr<TargetWeights::Labels> TargetWeights::Read(const opdag::Op& weight, bool evaluation, int64_t step, int micro_batch) {
  const opdag::Graph& graph = training_.graph;
  const opdag::Op& cross_entropy = graph.op(graph.FindOp(weight.attributes.Text("of")));
  const opdag::Op& placeholder = graph.op(opdag::LabelsOf(graph, cross_entropy));
  const tensor::TensorType& type = graph.value(placeholder.outputs[0]).type;
  tensor::Buffer room(type.bytes());
  const tensor::TensorView view{type, room.data()};
  FUSIONLLM_RETURN_IF_ERROR(source_.Fill(evaluation, step, micro_batch, placeholder, view));
  const int64_t ignored = cross_entropy.attributes.Int("ignore_index", opdag::kDefaultIgnoreIndex);
  const int32_t* const labels = view.as<int32_t>();
  const int64_t all = type.elements();
  return Labels{all - std::count(labels, labels + all, ignored), all};
}

absl::StatusOr<float> TargetWeights::OfStep(const opdag::Op& weight, int64_t step, int micro_batches) {
  Known& known = of_step_[weight.name];
  if (known.of == step) return known.weight;
  Labels sum;
  for (int i = 0; i < micro_batches; ++i) {
    FUSIONLLM_ASSIGN_OR_RETURN(const Labels labels, Read(weight, /*evaluation=*/false, step, i));
    sum.counted += labels.counted;
    sum.all += labels.all;
  }
  known = {step, sum.counted > 0 ? static_cast<float>(static_cast<double>(sum.all) / static_cast<double>(sum.counted)) : 0};
  return known.weight;
}

absl::StatusOr<float> TargetWeights::OfEvaluation(const opdag::Op& weight, int64_t samples, int micro_batches) {
  Known& known = of_evaluation_[weight.name];
  if (known.of == samples) return known.weight;
  const int64_t size = training_.graph.batch();
  double share = 0;
  for (int i = 0;; ++i) {
    const std::optional<EvaluationPass> pass = EvaluationPassAt(samples, size, i);
    if (!pass.has_value()) break;
    FUSIONLLM_ASSIGN_OR_RETURN(const Labels labels, Read(weight, /*evaluation=*/true, i / micro_batches, i % micro_batches));
    // Each sample of it is there as often as fills the micro-batch.
    share += static_cast<double>(pass->samples) * static_cast<double>(labels.counted) / static_cast<double>(labels.all);
  }
  known = {samples, share > 0 ? static_cast<float>(static_cast<double>(samples) / share) : 0};
  return known.weight;
}

}  // namespace fusionllm::runtime
