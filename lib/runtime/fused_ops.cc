#include "lib/runtime/fused_ops.h"

#include <algorithm>
#include <set>
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

// What the first op hands on, by all its names.
struct HandedOn {
  std::set<opdag::ValueId> names;
  std::set<opdag::OpId> readers;  // views of it aside, of this and other passes and stages
};

HandedOn Follow(const opdag::Graph& graph, const std::set<opdag::OpId>& views, opdag::ValueId value) {
  HandedOn all;
  std::vector<opdag::ValueId> names = {value};
  while (!names.empty()) {
    const opdag::ValueId name = names.back();
    names.pop_back();
    all.names.insert(name);
    for (const opdag::OpId reader : graph.value(name).consumers) {
      if (views.contains(reader)) {
        names.push_back(graph.op(reader).outputs[0]);
      } else {
        all.readers.insert(reader);
      }
    }
  }
  return all;
}

size_t NextThatRuns(const Pass& pass, size_t i) {
  while (i < pass.ops.size() && pass.ops[i].view) ++i;
  return i;
}

bool Sends(const Pass& pass, size_t begin, size_t end) {
  return std::any_of(pass.ops.begin() + static_cast<std::ptrdiff_t>(begin), pass.ops.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const ProgramOp& op) { return !op.sends.empty(); });
}

}  // namespace

absl::StatusOr<std::map<size_t, FusedPair>> FusePass(const opdag::Graph& graph, const Pass& pass,
                                                     const std::vector<std::vector<BoundOp>>& bound, kernels::Backend& backend) {
  std::set<opdag::OpId> views;
  for (const ProgramOp& op : pass.ops) {
    if (op.view) views.insert(op.op);
  }
  std::map<size_t, FusedPair> pairs;
  size_t next = 0;
  for (size_t i = NextThatRuns(pass, 0); i < pass.ops.size(); i = next) {
    next = NextThatRuns(pass, i + 1);
    if (next == pass.ops.size()) break;
    const opdag::Op& first = graph.op(pass.ops[i].op);
    opdag::Op second = graph.op(pass.ops[next].op);
    if (first.outputs.empty() || Sends(pass, i, next) || pass.ops[i].recompute != pass.ops[next].recompute) continue;
    const opdag::ValueId between = first.outputs[0];
    const HandedOn handed_on = Follow(graph, views, between);
    const auto is_handed_on = [&](opdag::ValueId value) { return handed_on.names.contains(value); };
    // Of what is read twice a kernel would find one as its other input, and not made yet.
    if (std::count_if(second.inputs.begin(), second.inputs.end(), is_handed_on) != 1) continue;
    opdag::ValueId& read = *std::find_if(second.inputs.begin(), second.inputs.end(), is_handed_on);
    if (graph.value(read).type != graph.value(between).type) continue;  // back ends look types up by the value
    read = between;
    const bool wanted = handed_on.readers.size() > 1 || is_handed_on(graph.loss()) || pass.location[between].arena != Arena::kScratch;
    FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Kernel> kernel, backend.PrepareFused(graph, first, second, wanted));
    if (kernel == nullptr) continue;
    const auto allows = [&](const std::vector<BoundOp>& ops) { return MemoryAllows(*kernel, ops[i], ops[next]); };
    if (!std::all_of(bound.begin(), bound.end(), allows)) continue;
    FusedPair& pair = pairs[i];
    pair.ops = next + 1 - i;
    for (const std::vector<BoundOp>& ops : bound) pair.bound.push_back(Together(ops[i], ops[next], wanted));
    pair.kernel = std::move(kernel);
    next = NextThatRuns(pass, next + 1);  // that one is taken
  }
  return pairs;
}

}  // namespace fusionllm::runtime
