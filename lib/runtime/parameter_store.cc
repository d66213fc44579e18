#include "lib/runtime/parameter_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"

namespace fusionllm::runtime {
namespace {

using opdag::Initializer;

// Of tensors in an arena: what a device's vector instructions and its copies like best.
constexpr size_t kSpacing = 256;

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

ParameterStore::Place ParameterStore::Arena::Add(const tensor::TensorType& type) {
  const Place place{.type = type, .offset = bytes_};
  bytes_ += (type.bytes() + kSpacing - 1) / kSpacing * kSpacing;
  return place;
}

absl::Status ParameterStore::Arena::Allocate(tensor::Memory& memory) {
  memory_ = &memory;
  FUSIONLLM_ASSIGN_OR_RETURN(block_, memory.Allocate(bytes_));
  return memory.Zero(block_.data(), bytes_);
}

tensor::TensorView ParameterStore::Arena::host_view(const Place& place) {
  if (memory_->on_host()) return view(place);
  if (mirror_.size() < bytes_) {
    mirror_ = tensor::Buffer(bytes_);
    std::memset(mirror_.data(), 0, bytes_);
  }
  return {place.type, mirror_.data() + place.offset};
}

absl::Status ParameterStore::Arena::Pull() {
  if (memory_->on_host() || bytes_ == 0) return absl::OkStatus();
  return memory_->CopyOut(host_view({}).data, block_.data(), bytes_);
}

absl::Status ParameterStore::Arena::Push() {
  if (memory_->on_host() || bytes_ == 0) return absl::OkStatus();
  return memory_->CopyIn(block_.data(), host_view({}).data, bytes_);
}

ParameterStore::ParameterStore(const autodiff::TrainingGraph& training, const StageProgram& program,
                               const kernels::OptimizerConfig& optimizer, kernels::Backend& backend)
    : training_(training), optimizer_(optimizer), backend_(backend) {
  const size_t states = StateNames(optimizer).size();
  for (const opdag::ParameterId id : program.parameters) {
    const opdag::Parameter& parameter = training.graph.parameter(id);
    Entry& entry = parameters_[id];
    entry.value = values_.Add(parameter.type);
    entry.shared = !program.sharers[id].empty();
    entry.owned = program.sharers[id].empty() || program.sharers[id].front() == program.stage;
    if (!parameter.trainable) continue;
    for (size_t s = 0; s < states; ++s) entry.state.push_back(states_.Add(parameter.type));
  }
  for (int use = 0; use < static_cast<int>(training.uses.size()); ++use) {
    const auto found = parameters_.find(training.uses[use].parameter);
    if (found != parameters_.end()) found->second.uses.push_back(use);
  }
  for (const int use : program.local_uses) {
    Entry& entry = parameters_.at(training.uses[use].parameter);
    if (entry.result_use == opdag::kNone) entry.result_use = use;
    per_use_gradients_.emplace(use, gradients_.Add(entry.value.type));
  }
}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(const autodiff::TrainingGraph& training, const StageProgram& program,
                                                                       const kernels::OptimizerConfig& optimizer,
                                                                       kernels::Backend& backend) {
  std::unique_ptr<ParameterStore> store(new ParameterStore(training, program, optimizer, backend));
  for (Arena* arena : {&store->values_, &store->states_, &store->gradients_}) {
    FUSIONLLM_RETURN_IF_ERROR(arena->Allocate(backend.memory()));
  }
  return store;
}

absl::Status ParameterStore::InitializeAll(uint64_t seed) {
  for (auto& [id, entry] : parameters_) {
    Initialize(training_.graph.parameter(id), seed, values_.host_view(entry.value));
    for (const Place& state : entry.state) std::memset(states_.host_view(state).data, 0, state.type.bytes());
  }
  return PushToDevice();
}

absl::StatusOr<std::vector<float>> ParameterStore::ReadPerUseGradient(int use) {
  const tensor::TensorView view = per_use_gradient(use);
  std::vector<float> gradient(static_cast<size_t>(view.type.elements()));
  FUSIONLLM_RETURN_IF_ERROR(backend_.memory().CopyOut(gradient.data(), view.data, view.type.bytes()));
  return gradient;
}

absl::Status ParameterStore::WritePerUseGradient(int use, std::span<const float> gradient) {
  const tensor::TensorView view = per_use_gradient(use);
  return backend_.memory().CopyIn(view.data, gradient.data(), view.type.bytes());
}

void ParameterStore::ForEachParameter(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only) {
  for (auto& [id, entry] : parameters_) {
    if (entry.owned || !owned_only) visit(training_.graph.parameter(id).name, values_.host_view(entry.value));
  }
}

void ParameterStore::ForEachState(const std::function<void(const std::string&, tensor::TensorView)>& visit, bool owned_only) {
  const std::vector<std::string> names = StateNames(optimizer_);
  for (auto& [id, entry] : parameters_) {
    if (!entry.owned && owned_only) continue;
    for (size_t s = 0; s < entry.state.size(); ++s) {
      visit(absl::StrCat(training_.graph.parameter(id).name, ".", names[s]), states_.host_view(entry.state[s]));
    }
  }
}

absl::Status ParameterStore::PullToHost() {
  FUSIONLLM_RETURN_IF_ERROR(values_.Pull());
  return states_.Pull();
}

absl::Status ParameterStore::PushToDevice() {
  FUSIONLLM_RETURN_IF_ERROR(values_.Push());
  return states_.Push();
}

absl::Status ParameterStore::CombineUsesOf(opdag::ParameterId id, const Entry& entry, const std::map<int, std::vector<float>>& remote) {
  tensor::Memory& memory = backend_.memory();
  const size_t bytes = entry.value.type.bytes();
  const size_t step = (bytes + kSpacing - 1) / kSpacing * kSpacing;
  std::vector<const float*> terms;
  size_t used = 0;
  const auto elsewhere = std::count_if(entry.uses.begin(), entry.uses.end(), [this](int use) { return !per_use_gradients_.contains(use); });
  if (const size_t wanted = static_cast<size_t>(elsewhere) * step; !memory.on_host() && arrived_.size() < wanted) {
    FUSIONLLM_ASSIGN_OR_RETURN(arrived_, memory.Allocate(wanted));
  }
  for (const int use : entry.uses) {
    if (per_use_gradients_.contains(use)) {
      terms.push_back(per_use_gradient(use).f32());
      continue;
    }
    const auto found = remote.find(use);
    if (found == remote.end() || found->second.size() * sizeof(float) != bytes) {
      return absl::InvalidArgumentError(absl::StrFormat("gradient of '%s' from op '%s' is missing or of the wrong size",
                                                        training_.graph.parameter(id).name,
                                                        training_.graph.op(training_.uses[use].op).name));
    }
    if (memory.on_host()) {
      terms.push_back(found->second.data());
      continue;
    }
    std::byte* here = arrived_.data() + used;
    used += step;
    FUSIONLLM_RETURN_IF_ERROR(memory.CopyIn(here, found->second.data(), bytes));
    terms.push_back(reinterpret_cast<const float*>(here));
  }
  return backend_.optimizer().Add(terms, CombinedGradient(entry).f32(), static_cast<size_t>(entry.value.type.elements()));
}

absl::Status ParameterStore::CombineLocalUses() {
  for (const auto& [id, entry] : parameters_) {
    if (!entry.shared && entry.uses.size() > 1) FUSIONLLM_RETURN_IF_ERROR(CombineUsesOf(id, entry, {}));
  }
  return absl::OkStatus();
}

absl::Status ParameterStore::CombineSharedUses(const std::map<int, std::vector<float>>& remote) {
  for (const auto& [id, entry] : parameters_) {
    if (entry.shared && entry.uses.size() > 1) FUSIONLLM_RETURN_IF_ERROR(CombineUsesOf(id, entry, remote));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<opdag::ParameterId, double>>> ParameterStore::SumsOfSquares() {
  std::vector<opdag::ParameterId> ids;
  std::vector<std::span<const float>> gradients;
  for (const auto& [id, entry] : parameters_) {
    if (!entry.owned || entry.uses.empty()) continue;
    ids.push_back(id);
    gradients.emplace_back(Floats(CombinedGradient(entry)));
  }
  std::vector<double> squares(ids.size());
  FUSIONLLM_RETURN_IF_ERROR(backend_.optimizer().SumsOfSquares(gradients, squares));
  std::vector<std::pair<opdag::ParameterId, double>> sums;
  for (size_t i = 0; i < ids.size(); ++i) sums.emplace_back(ids[i], squares[i]);
  return sums;
}

absl::Status ParameterStore::Update(double learning_rate, int64_t step, float gradient_scale) {
  std::vector<kernels::ParameterUpdate> updates;
  for (const auto& [id, entry] : parameters_) {
    if (entry.uses.empty()) continue;
    kernels::ParameterUpdate& update = updates.emplace_back();
    update.gradient = CombinedGradient(entry).f32();
    update.parameter = values_.view(entry.value).f32();
    for (size_t s = 0; s < entry.state.size(); ++s) update.states.at(s) = states_.view(entry.state[s]).f32();
    update.count = static_cast<size_t>(entry.value.type.elements());
    update.decay = entry.value.type.shape.rank() >= 2;
  }
  return backend_.optimizer().Update(optimizer_, {.learning_rate = learning_rate, .step = step, .gradient_scale = gradient_scale}, updates);
}

bool ParameterStore::Owns(opdag::ParameterId id) const {
  const auto found = parameters_.find(id);
  return found != parameters_.end() && found->second.owned;
}

}  // namespace fusionllm::runtime
