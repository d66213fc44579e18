#include "lib/runtime/fused_ops.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lib/base/status_macros.h"

namespace fusionllm::runtime {
namespace {

bool TensorsOverlap(const tensor::ConstTensorView& a, const tensor::TensorView& b) {
  if (a.data == nullptr || b.data == nullptr) return false;
  const auto* const x = static_cast<const std::byte*>(a.data);
  const auto* const y = static_cast<const std::byte*>(b.data);
  return x < y + b.type.bytes() && y < x + a.type.bytes();
}

// Ops of a pass that run one after the other, each on what the one before hands on.
struct Row {
  std::vector<size_t> positions;      // in the pass
  std::vector<kernels::FusedOp> ops;  // whose inputs name what is handed on as its maker does
  std::vector<size_t> through;        // which input that is; of the first op, nothing
};

// Whether what later ops write leaves alone what the kernel still reads for earlier ones. What one hands on to the next is not read, and
// written only where it is not dead.
bool MemoryAllows(const kernels::Kernel& kernel, const Row& row, const std::vector<BoundOp>& bound) {
  int first_output = 0;
  for (size_t later = 0; later < row.ops.size(); ++later) {
    const BoundOp& writer = bound[row.positions[later]];
    int first_input = 0;
    for (size_t earlier = 0; earlier < later; ++earlier) {
      const BoundOp& reader = bound[row.positions[earlier]];
      for (size_t i = 0; i < reader.inputs.size(); ++i) {
        if (earlier > 0 && i == row.through[earlier]) continue;
        for (size_t o = row.ops[later].keeps_output ? 0 : 1; o < writer.outputs.size(); ++o) {
          if (!TensorsOverlap(reader.inputs[i], writer.outputs[o])) continue;
          const bool same_place = reader.inputs[i].data == writer.outputs[o].data;
          if (!same_place || !kernel.CanRunInPlace(first_output + static_cast<int>(o), first_input + static_cast<int>(i))) return false;
        }
      }
      first_input += static_cast<int>(reader.inputs.size());
    }
    first_output += static_cast<int>(writer.outputs.size());
  }
  return true;
}

template <typename T>
void Append(const std::vector<T>& more, std::vector<T>& to) {
  to.insert(to.end(), more.begin(), more.end());
}

BoundOp Together(const Row& row, const std::vector<BoundOp>& bound) {
  BoundOp all;
  std::vector<bool> accumulate;
  for (size_t i = 0; i < row.ops.size(); ++i) {
    const BoundOp& op = bound[row.positions[i]];
    Append(op.inputs, all.inputs);
    Append(op.parameters, all.parameters);
    const size_t first_output = all.outputs.size();
    Append(op.outputs, all.outputs);
    if (!row.ops[i].keeps_output) all.outputs[first_output].data = nullptr;
    accumulate.insert(accumulate.end(), op.accumulate.get(), op.accumulate.get() + op.outputs.size());
  }
  all.accumulate = std::make_unique<bool[]>(accumulate.size());
  std::copy(accumulate.begin(), accumulate.end(), all.accumulate.get());
  return all;
}

// What an op hands on, by all its names.
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

// Adds the next op of the pass to a row. Returns whether it can be one of it.
bool Extend(const opdag::Graph& graph, const Pass& pass, const std::set<opdag::OpId>& views, Row& row) {
  const size_t last = row.positions.back(), next = NextThatRuns(pass, last + 1);
  if (next == pass.ops.size() || Sends(pass, last, next) || pass.ops[last].recompute != pass.ops[next].recompute) return false;
  const opdag::Op& maker = row.ops.back().op;
  if (maker.outputs.empty()) return false;
  const opdag::ValueId between = maker.outputs[0];
  const HandedOn handed_on = Follow(graph, views, between);
  // Of what the row makes a kernel would find anything else, or the same once more, as an input that is not made yet.
  std::set<opdag::ValueId> made;
  for (const kernels::FusedOp& link : row.ops) {
    for (const opdag::ValueId output : link.op.outputs) made.merge(Follow(graph, views, output).names);
  }
  opdag::Op op = graph.op(pass.ops[next].op);
  if (std::count_if(op.inputs.begin(), op.inputs.end(), [&](opdag::ValueId input) { return made.contains(input); }) != 1) return false;
  const auto read = std::find_if(op.inputs.begin(), op.inputs.end(), [&](opdag::ValueId input) { return handed_on.names.contains(input); });
  if (read == op.inputs.end()) return false;
  if (graph.value(*read).type != graph.value(between).type) return false;  // back ends look types up by the value
  *read = between;
  row.ops.back().keeps_output =
      handed_on.readers.size() > 1 || handed_on.names.contains(graph.loss()) || pass.location[between].arena != Arena::kScratch;
  row.positions.push_back(next);
  row.through.push_back(static_cast<size_t>(read - op.inputs.begin()));
  row.ops.push_back({.op = std::move(op)});
  return true;
}

// A kernel for the row whose memory allows it, or null.
absl::StatusOr<std::unique_ptr<kernels::Kernel>> KernelOf(const opdag::Graph& graph, const std::vector<std::vector<BoundOp>>& bound,
                                                          const Row& row, kernels::Backend& backend) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Kernel> kernel, backend.PrepareFused(graph, row.ops));
  if (kernel == nullptr) return nullptr;
  const auto allows = [&](const std::vector<BoundOp>& ops) { return MemoryAllows(*kernel, row, ops); };
  if (!std::all_of(bound.begin(), bound.end(), allows)) return nullptr;
  return kernel;
}

}  // namespace

absl::StatusOr<std::map<size_t, FusedRow>> FusePass(const opdag::Graph& graph, const Pass& pass,
                                                    const std::vector<std::vector<BoundOp>>& bound, kernels::Backend& backend) {
  std::set<opdag::OpId> views;
  for (const ProgramOp& op : pass.ops) {
    if (op.view) views.insert(op.op);
  }
  std::map<size_t, FusedRow> rows;
  for (size_t i = NextThatRuns(pass, 0); i < pass.ops.size();) {
    // The row up to each length that it can have, the longest last.
    std::vector<Row> candidates = {{.positions = {i}, .ops = {{.op = graph.op(pass.ops[i].op)}}, .through = {0}}};
    while (candidates.size() < kernels::kMaxFusedOps) {
      Row longer = candidates.back();
      if (!Extend(graph, pass, views, longer)) break;
      candidates.push_back(std::move(longer));
    }
    size_t last = i;
    for (; candidates.size() > 1; candidates.pop_back()) {
      const Row& row = candidates.back();
      FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Kernel> kernel, KernelOf(graph, bound, row, backend));
      if (kernel == nullptr) continue;
      last = row.positions.back();
      FusedRow& fused = rows[i];
      fused.ops = last + 1 - i;
      for (const std::vector<BoundOp>& ops : bound) fused.bound.push_back(Together(row, ops));
      fused.kernel = std::move(kernel);
      break;
    }
    i = NextThatRuns(pass, last + 1);
  }
  return rows;
}

}  // namespace fusionllm::runtime
