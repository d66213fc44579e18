#include "lib/runtime/parameter_store.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/philox.h"

namespace fusionllm::runtime {
namespace {

using opdag::Initializer;

std::span<float> Floats(tensor::TensorView view) { return {view.f32(), static_cast<size_t>(view.type.elements())}; }

}  // namespace

void Initialize(const opdag::Parameter& parameter, uint64_t seed, tensor::TensorView out) {
  std::memset(out.data, 0, out.type.bytes());
  if (out.type.dtype != tensor::DType::kF32) return;  // counters start at zero
  const base::CounterRng rng(seed, parameter.name);
  const auto scale = static_cast<float>(parameter.initializer.scale);
  uint64_t index = 0;
  for (float& x : Floats(out)) {
    switch (parameter.initializer.kind) {
      case Initializer::Kind::kZeros:
        x = 0;
        break;
      case Initializer::Kind::kOnes:
        x = 1;
        break;
      case Initializer::Kind::kNormal:
        x = scale * rng.Normal(index);
        break;
      case Initializer::Kind::kUniform:
        x = scale * (2 * rng.Uniform(index) - 1);
        break;
    }
    ++index;
  }
}

ParameterStore::ParameterStore(const autodiff::TrainingGraph& training, const StageProgram& program, const OptimizerConfig& optimizer)
    : training_(training), optimizer_(optimizer) {
  const size_t states = StateNames(optimizer).size();
  for (const opdag::ParameterId id : program.parameters) {
    const opdag::Parameter& parameter = training.graph.parameter(id);
    Entry& entry = parameters_[id];
    entry.value = tensor::Tensor(parameter.type);
    entry.owned = program.sharers[id].empty() || program.sharers[id].front() == program.stage;
    if (!parameter.trainable) continue;
    for (size_t s = 0; s < states; ++s) entry.state.emplace_back(parameter.type);
  }
  for (int use = 0; use < static_cast<int>(training.uses.size()); ++use) {
    const auto found = parameters_.find(training.uses[use].parameter);
    if (found != parameters_.end()) found->second.uses.push_back(use);
  }
  for (const int use : program.local_uses) {
    Entry& entry = parameters_.at(training.uses[use].parameter);
    if (entry.result_use == opdag::kNone) entry.result_use = use;
    use_gradients_.emplace(use, tensor::Tensor(entry.value.type()));
  }
}

void ParameterStore::InitializeAll(uint64_t seed) {
  for (auto& [id, entry] : parameters_) {
    Initialize(training_.graph.parameter(id), seed, entry.value.view());
    for (tensor::Tensor& state : entry.state) std::memset(state.as<std::byte>(), 0, state.type().bytes());
  }
}

void ParameterStore::ForEachParameter(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only) {
  for (auto& [id, entry] : parameters_) {
    if (entry.owned || !owned_only) visit(training_.graph.parameter(id).name, entry.value.view());
  }
}

void ParameterStore::ForEachState(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only) {
  const std::vector<std::string> names = StateNames(optimizer_);
  for (auto& [id, entry] : parameters_) {
    if (!entry.owned && owned_only) continue;
    for (size_t s = 0; s < entry.state.size(); ++s) {
      visit(absl::StrCat(training_.graph.parameter(id).name, ".", names[s]), entry.state[s].view());
    }
  }
}

std::span<float> ParameterStore::CombinedGradient(const Entry& entry) { return Floats(use_gradients_.at(entry.result_use).view()); }

absl::Status ParameterStore::CombineUses(const std::map<int, Payload>& remote) {
  for (auto& [id, entry] : parameters_) {
    if (entry.uses.size() <= 1) continue;
    const size_t count = static_cast<size_t>(entry.value.type().elements());
    std::vector<const float*> terms;
    for (const int use : entry.uses) {
      if (const auto local = use_gradients_.find(use); local != use_gradients_.end()) {
        terms.push_back(local->second.f32());
        continue;
      }
      const auto found = remote.find(use);
      if (found == remote.end() || found->second.size() != count * sizeof(float)) {
        return absl::InvalidArgumentError(absl::StrFormat("gradient of '%s' from op '%s' is missing or of the wrong size",
                                                          training_.graph.parameter(id).name,
                                                          training_.graph.op(training_.uses[use].op).name));
      }
      terms.push_back(reinterpret_cast<const float*>(found->second.data()));
    }
    const std::span<float> sum = CombinedGradient(entry);
    for (size_t i = 0; i < count; ++i) {
      float total = terms[0][i];
      for (size_t t = 1; t < terms.size(); ++t) total += terms[t][i];
      sum[i] = total;
    }
  }
  return absl::OkStatus();
}

std::vector<std::pair<opdag::ParameterId, double>> ParameterStore::SumsOfSquares() {
  std::vector<std::pair<opdag::ParameterId, double>> sums;
  for (const auto& [id, entry] : parameters_) {
    if (entry.owned && !entry.uses.empty()) sums.emplace_back(id, SumOfSquares(CombinedGradient(entry)));
  }
  return sums;
}

void ParameterStore::Update(double learning_rate, int64_t step, float gradient_scale) {
  for (auto& [id, entry] : parameters_) {
    if (entry.uses.empty()) continue;
    std::vector<std::span<float>> state;
    for (tensor::Tensor& tensor : entry.state) state.push_back(Floats(tensor.view()));
    UpdateParameter(optimizer_, learning_rate, /*decay=*/entry.value.shape().rank() >= 2, step, gradient_scale, CombinedGradient(entry),
                    Floats(entry.value.view()), state);
  }
}

bool ParameterStore::Owns(opdag::ParameterId id) const {
  const auto found = parameters_.find(id);
  return found != parameters_.end() && found->second.owned;
}

}  // namespace fusionllm::runtime
