#include "tests/numerics/training_case.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/text.h"

namespace fusionllm::numerics {

absl::Status TrainingCase::Step() {
  FUSIONLLM_RETURN_IF_ERROR(Forward());
  // The graph weighs the seed with the share of targets that count; without that it is the gradient of the loss itself.
  const float counted = training.counted == opdag::kNone ? 1 : evaluator->value(training.counted).f32()[0];
  evaluator->value(training.loss_gradient).f32()[0] = counted > 0 ? 1 / counted : 0;
  return evaluator->Run(training.forward_ops, static_cast<opdag::OpId>(training.graph.ops().size()));
}

std::vector<double> TrainingCase::Gradient(opdag::ParameterId parameter) {
  std::vector<double> sum(training.graph.parameter(parameter).type.elements(), 0);
  for (const autodiff::ParameterUse& use : training.uses) {
    if (use.parameter != parameter) continue;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += evaluator->value(use.gradient).f32()[i];
  }
  return sum;
}

absl::StatusOr<TrainingCase> MakeTrainingCase(opdag::Graph graph, int64_t batch, absl::string_view backend, uint64_t seed) {
  FUSIONLLM_RETURN_IF_ERROR(opdag::InferTypes(graph, batch));
  TrainingCase result;
  FUSIONLLM_ASSIGN_OR_RETURN(result.training, autodiff::Differentiate(graph));
  FUSIONLLM_RETURN_IF_ERROR(opdag::Verify(result.training.graph));
  FUSIONLLM_ASSIGN_OR_RETURN(result.evaluator, Evaluator::Create(result.training.graph, backend, seed));
  return result;
}

absl::StatusOr<TrainingCase> MakeTrainingCase(const GoldenCase& golden, absl::string_view backend) {
  FUSIONLLM_ASSIGN_OR_RETURN(opdag::Graph graph, opdag::ParseGraph(golden.graph, golden.name));
  FUSIONLLM_ASSIGN_OR_RETURN(TrainingCase result, MakeTrainingCase(std::move(graph), 1, backend));
  const auto copy = [&golden](const std::string& name, const GoldenTensor& from, tensor::Tensor& to) {
    if (!(from.type == to.type())) {
      return absl::InvalidArgumentError(
          absl::StrCat(golden.name, ": ", name, " is ", from.type.ToString(), " and not ", to.type().ToString()));
    }
    CopyNumbers(from, to.view());
    return absl::OkStatus();
  };
  const opdag::Graph& typed = result.training.graph;
  if (const auto feeds = golden.tensors.find("feed"); feeds != golden.tensors.end()) {
    for (const auto& [name, from] : feeds->second) {
      const opdag::OpId op = typed.FindOp(name);
      if (op == opdag::kNone) return absl::InvalidArgumentError(absl::StrCat(golden.name, ": no placeholder ", name));
      FUSIONLLM_RETURN_IF_ERROR(copy(name, from, result.evaluator->value(typed.op(op).outputs[0])));
    }
  }
  if (const auto parameters = golden.tensors.find("param"); parameters != golden.tensors.end()) {
    for (const auto& [name, from] : parameters->second) {
      const opdag::ParameterId parameter = typed.FindParameter(name);
      if (parameter == opdag::kNone) return absl::InvalidArgumentError(absl::StrCat(golden.name, ": no parameter ", name));
      FUSIONLLM_RETURN_IF_ERROR(copy(name, from, result.evaluator->parameter(parameter)));
    }
  }
  return result;
}

}  // namespace fusionllm::numerics
