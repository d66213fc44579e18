#include "lib/kernels/testing/op_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"

namespace fusionllm::kernels::testing {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr auto kGuard = std::byte{0xA5};
constexpr auto kPoison = std::byte{0xFF};  // four of them are a NaN

// Bytes between two sentinels in the back end's memory, aligned as the arena aligns them; what the host says of them is what ReadBack
// found.
class Guarded {
 public:
  Guarded(tensor::Memory& memory, size_t bytes) : Guarded(memory, std::vector<std::byte>(bytes, kPoison)) {}
  Guarded(tensor::Memory& memory, const Array& array) : Guarded(memory, array.bytes) {}

  std::byte* data() const { return block_.data() + kGuardBytes; }
  absl::Status ReadBack() { return memory_->CopyOut(host_.data(), block_.data(), host_.size()); }
  bool Intact() const {
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (host_[i] != kGuard || host_[host_.size() - 1 - i] != kGuard) return false;
    }
    return true;
  }
  bool Holds(const Array& array) const { return std::memcmp(host_.data() + kGuardBytes, array.bytes.data(), array.bytes.size()) == 0; }
  void CopyTo(Array& array) const { std::memcpy(array.bytes.data(), host_.data() + kGuardBytes, array.bytes.size()); }

 private:
  Guarded(tensor::Memory& memory, const std::vector<std::byte>& bytes) : memory_(&memory), host_(bytes.size() + 2 * kGuardBytes, kGuard) {
    std::copy(bytes.begin(), bytes.end(), host_.begin() + kGuardBytes);
    block_ = *memory.Allocate(host_.size());
    if (!memory.CopyIn(block_.data(), host_.data(), host_.size()).ok()) std::abort();
  }

  tensor::Memory* memory_;
  tensor::MemoryBlock block_;
  std::vector<std::byte> host_;
};

bool At(const std::vector<bool>& flags, size_t index, bool fallback) { return flags.empty() ? fallback : flags[index]; }

const Array& Pick(const std::string& name, const OpCase& forward, const std::vector<Array>& outputs, const Array& dy) {
  if (name == "dy") return dy;
  const size_t index = name[1] - '0';
  return name[0] == 'x' ? forward.inputs[index] : name[0] == 'p' ? forward.parameters[index] : outputs[index];
}

}  // namespace

RunResult RunKernel(Kernel& kernel, const OpCase& op_case, const RunOptions& options) {
  RunResult result;
  std::vector<Guarded> inputs, parameters, outputs;
  std::vector<tensor::ConstTensorView> input_views;
  std::vector<tensor::TensorView> parameter_views, output_views;
  for (const Array& array : op_case.inputs) {
    inputs.emplace_back(*options.memory, array);
    input_views.emplace_back(array.type, inputs.back().data());
  }
  for (const Array& array : op_case.parameters) {
    parameters.emplace_back(*options.memory, array);
    parameter_views.push_back({array.type, parameters.back().data()});
  }
  for (size_t i = 0; i < op_case.op.outputs.size(); ++i) {
    outputs.push_back(options.initial.empty() ? Guarded(*options.memory, op_case.op.outputs[i].bytes())
                                              : Guarded(*options.memory, options.initial[i]));
    output_views.push_back({op_case.op.outputs[i], At(options.wanted, i, true) ? outputs.back().data() : nullptr});
  }
  if (options.in_place) output_views[options.output_in_place].data = inputs[options.input_in_place].data();
  bool accumulate[16] = {};
  for (size_t i = 0; i < outputs.size() && i < 16; ++i) accumulate[i] = At(options.accumulate, i, false);
  Guarded workspace(*options.memory, kernel.workspace_bytes());

  KernelArguments arguments{.inputs = input_views, .parameters = parameter_views, .outputs = output_views};
  if (!options.accumulate.empty()) arguments.accumulate = std::span<const bool>(accumulate, outputs.size());
  arguments.mode = options.mode;
  arguments.random = options.random;
  arguments.workspace = {workspace.data(), kernel.workspace_bytes()};
  result.status = kernel.Run(arguments);
  // What a device finds late, the first copy tells.
  result.status.Update(workspace.ReadBack());
  for (std::vector<Guarded>* guarded : {&inputs, &parameters, &outputs}) {
    for (Guarded& g : *guarded) result.status.Update(g.ReadBack());
  }

  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool overwritten = options.in_place && static_cast<int>(i) == options.input_in_place;
    if (!inputs[i].Intact() || (!overwritten && !inputs[i].Holds(op_case.inputs[i]))) absl::StrAppend(&result.overrun, " input ", i);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].Intact()) absl::StrAppend(&result.overrun, " parameter ", i);
    result.parameters.emplace_back(op_case.parameters[i].type);
    parameters[i].CopyTo(result.parameters.back());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].Intact()) absl::StrAppend(&result.overrun, " output ", i);
    result.outputs.emplace_back(op_case.op.outputs[i]);
    (options.in_place && static_cast<int>(i) == options.output_in_place ? inputs[options.input_in_place] : outputs[i])
        .CopyTo(result.outputs.back());
  }
  if (!workspace.Intact()) absl::StrAppend(&result.overrun, " workspace");
  return result;
}

RunResult RunCase(const KernelMaker& make, const OpCase& op_case, const RunOptions& options) {
  auto kernel = make(op_case.op);
  if (!kernel.ok()) return {.status = kernel.status()};
  return RunKernel(**kernel, op_case, options);
}

OpCase BackwardCase(const OpCase& forward, const BackwardOp& backward, const std::vector<Array>& outputs, const Array& dy) {
  OpCase result{.op = {.name = forward.op.name + ".grad", .kind = opdag::OpKindOf(backward.type), .attributes = backward.attributes}};
  for (const std::string& name : backward.inputs) {
    result.inputs.push_back(Pick(name, forward, outputs, dy));
    result.op.inputs.push_back(result.inputs.back().type);
  }
  for (const std::string& name : backward.parameters) {
    result.parameters.push_back(Pick(name, forward, outputs, dy));
    result.op.parameters.push_back(result.parameters.back().type);
  }
  for (const std::string& name : backward.outputs) result.op.outputs.push_back(Pick(name, forward, outputs, dy).type);
  result.tolerance = forward.tolerance;
  return result;
}

Array RandomArray(const tensor::TensorType& type, uint64_t seed) {
  const base::CounterRng rng(seed, "array");
  Array array(type);
  for (int64_t i = 0; i < type.elements(); ++i) {
    if (type.dtype == tensor::DType::kF32) array.f32()[i] = rng.Normal(i);
  }
  return array;
}

std::string Difference(const Array& a, const Array& b, double tolerance) {
  if (a.type.dtype != tensor::DType::kF32) return a.bytes == b.bytes ? "" : "integers differ";
  const int64_t count = a.type.elements();
  double square = 0;
  for (int64_t i = 0; i < count; ++i) square += static_cast<double>(a.f32()[i]) * a.f32()[i];
  const double rms = std::sqrt(square / static_cast<double>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double difference = std::abs(static_cast<double>(a.f32()[i]) - b.f32()[i]);
    if (!(difference <= kAbsoluteTolerance + tolerance * std::max(std::abs(static_cast<double>(a.f32()[i])), rms))) {
      return absl::StrCat("element ", i, " of ", a.type.ToString(), ": ", a.f32()[i], " against ", b.f32()[i], " (rms ", rms, ")");
    }
  }
  return "";
}

}  // namespace fusionllm::kernels::testing
