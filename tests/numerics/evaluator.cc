#include "tests/numerics/evaluator.h"

#include <algorithm>

#include "lib/base/philox.h"
#include "lib/base/status_macros.h"

namespace fusionllm::numerics {
namespace {

void Initialize(const opdag::Parameter& parameter, uint64_t seed, const tensor::TensorView& to) {
  if (to.type.dtype != tensor::DType::kF32) return;  // counters start at zero, as the tensor does
  const base::CounterRng rng(seed, parameter.name);
  const auto scale = static_cast<float>(parameter.initializer.scale);
  for (int64_t i = 0; i < to.type.elements(); ++i) {
    switch (parameter.initializer.kind) {
      case opdag::Initializer::Kind::kZeros:
        to.f32()[i] = 0;
        break;
      case opdag::Initializer::Kind::kOnes:
        to.f32()[i] = 1;
        break;
      case opdag::Initializer::Kind::kNormal:
        to.f32()[i] = scale * rng.Normal(i);
        break;
      case opdag::Initializer::Kind::kUniform:
        to.f32()[i] = scale * (2 * rng.Uniform(i) - 1);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const opdag::Graph& graph, absl::string_view backend, uint64_t seed) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator());
  evaluator->graph_ = graph;
  FUSIONLLM_ASSIGN_OR_RETURN(evaluator->backend_, kernels::CreateBackend(backend, {.threads = 1}));
  size_t workspace = 1;
  for (const opdag::Op& op : graph.ops()) {
    std::unique_ptr<kernels::Kernel> kernel;
    if (op.kind != opdag::OpKind::kPlaceholder) {
      FUSIONLLM_ASSIGN_OR_RETURN(kernel, evaluator->backend_->Prepare(graph, op));
      workspace = std::max(workspace, kernel->workspace_bytes());
    }
    evaluator->kernels_.push_back(std::move(kernel));
  }
  for (const opdag::Value& value : graph.values()) evaluator->values_.emplace_back(value.type);
  for (const opdag::Parameter& parameter : graph.parameters()) {
    evaluator->parameters_.emplace_back(parameter.type);
    Initialize(parameter, seed, evaluator->parameters_.back().view());
  }
  evaluator->workspace_ = tensor::Buffer(workspace);
  return evaluator;
}

absl::Status Evaluator::Run(opdag::OpId begin, opdag::OpId end) {
  for (opdag::OpId id = begin; id < end; ++id) {
    if (kernels_[id] == nullptr) continue;
    const opdag::Op& op = graph_.op(id);
    std::vector<tensor::ConstTensorView> inputs;
    std::vector<tensor::TensorView> parameters, outputs;
    for (const opdag::ValueId input : op.inputs) inputs.emplace_back(values_[input].view());
    for (const opdag::ParameterId parameter : op.parameters) parameters.push_back(parameters_[parameter].view());
    for (const opdag::ValueId output : op.outputs) outputs.push_back(values_[output].view());
    kernels::KernelArguments arguments{.inputs = inputs, .parameters = parameters, .outputs = outputs};
    arguments.mode = kernels::Mode::kTrain;
    arguments.random.seed = 11;
    arguments.workspace = {workspace_.data(), workspace_.size()};
    FUSIONLLM_RETURN_IF_ERROR(kernels_[id]->Run(arguments));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::numerics
