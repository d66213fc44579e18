#include "lib/runtime/fused_ops.h"

#include <algorithm>
#include <utility>

#include "lib/base/status_macros.h"

namespace fusionllm::runtime {
namespace {

bool Overlap(const tensor::ConstTensorView& a, const tensor::TensorView& b) {
  if (a.data == nullptr || b.data == nullptr) return false;
  const auto* const x = static_cast<const std::byte*>(a.data);
  const auto* const y = static_cast<const std::byte*>(b.data);
  return x < y + b.type.bytes() && y < x + a.type.bytes();
}

// Whether what the second op writes leaves alone what the kernel still reads for the first.
bool MemoryAllows(const kernels::Kernel& kernel, const BoundOp& first, const BoundOp& second) {
  for (size_t o = 0; o < second.outputs.size(); ++o) {
    const int output = static_cast<int>(first.outputs.size() + o);
    for (size_t i = 0; i < first.inputs.size(); ++i) {
      if (!Overlap(first.inputs[i], second.outputs[o])) continue;
      if (first.inputs[i].data != second.outputs[o].data || !kernel.CanRunInPlace(output, static_cast<int>(i))) return false;
    }
  }
  return true;
}

template <typename T>
void Append(const std::vector<T>& more, std::vector<T>& to) {
  to.insert(to.end(), more.begin(), more.end());
}

BoundOp Together(const BoundOp& first, const BoundOp& second, bool first_output_wanted) {
  BoundOp both{.inputs = first.inputs, .parameters = first.parameters, .outputs = first.outputs};
  if (!first_output_wanted) both.outputs[0].data = nullptr;
  Append(second.inputs, both.inputs);
  Append(second.parameters, both.parameters);
  Append(second.outputs, both.outputs);
  both.accumulate = std::make_unique<bool[]>(both.outputs.size());
  std::copy_n(first.accumulate.get(), first.outputs.size(), both.accumulate.get());
  std::copy_n(second.accumulate.get(), second.outputs.size(), both.accumulate.get() + first.outputs.size());
  return both;
}

}  // namespace

absl::StatusOr<std::map<size_t, FusedPair>> FusePass(const opdag::Graph& graph, const Pass& pass,
                                                     const std::vector<std::vector<BoundOp>>& bound, kernels::Backend& backend) {
  std::map<size_t, FusedPair> pairs;
  for (size_t i = 0; i + 1 < pass.ops.size(); ++i) {
    const ProgramOp& one = pass.ops[i];
    const ProgramOp& other = pass.ops[i + 1];
    const opdag::Op& first = graph.op(one.op);
    const opdag::Op& second = graph.op(other.op);
    if (first.outputs.empty() || !one.sends.empty() || one.recompute != other.recompute) continue;
    const opdag::ValueId between = first.outputs[0];
    // Of what is read twice a kernel would find one as its other input, and not made yet.
    if (std::count(second.inputs.begin(), second.inputs.end(), between) != 1) continue;
    const bool wanted = graph.value(between).consumers.size() > 1 || pass.location[between].arena != Arena::kScratch;
    FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Kernel> kernel, backend.PrepareFused(graph, first, second, wanted));
    if (kernel == nullptr) continue;
    const auto allows = [&](const std::vector<BoundOp>& ops) { return MemoryAllows(*kernel, ops[i], ops[i + 1]); };
    if (!std::all_of(bound.begin(), bound.end(), allows)) continue;
    FusedPair& pair = pairs[i];
    for (const std::vector<BoundOp>& ops : bound) pair.bound.push_back(Together(ops[i], ops[i + 1], wanted));
    pair.kernel = std::move(kernel);
    ++i;  // which is taken
  }
  return pairs;
}

}  // namespace fusionllm::runtime
