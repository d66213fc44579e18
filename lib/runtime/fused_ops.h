// Ops of a pass with their addresses, alone or a row of them at a time. Internal to lib/runtime.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/kernels/backend.h"
#include "lib/opdag/graph.h"
#include "lib/runtime/stage_program.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::runtime {

// An op's kernel arguments with every address resolved, for one slot.
struct BoundOp {
  std::vector<tensor::ConstTensorView> inputs;
  std::vector<tensor::TensorView> parameters;
  std::vector<tensor::TensorView> outputs;
  std::unique_ptr<bool[]> accumulate;  // by output: it is a parameter gradient
};

// Neighbours of a pass that one kernel runs.
struct FusedRow {
  size_t ops = 0;  // with the views between them
  std::unique_ptr<kernels::Kernel> kernel;
  std::vector<BoundOp> bound;  // by slot; arguments of the first, then of the second, and so on
};

// Of a pass, by the position of the first op: the rows that the back end has a kernel for (Backend::PrepareFused) and whose memory allows
// it. From the first op on, each that is in no row yet begins the longest that there is. The memory plan may give an op's outputs the place
// of an earlier one's inputs, which are dead then: only where the kernel can run in place is that left as it is. Views are looked through:
// ops with nothing but views between them are neighbours, and what one makes is what the next reads if that is a view of it, of the same
// type. `bound`: by slot, then by position. Errors: the back end's.
absl::StatusOr<std::map<size_t, FusedRow>> FusePass(const opdag::Graph& graph, const Pass& pass,
                                                    const std::vector<std::vector<BoundOp>>& bound, kernels::Backend& backend);

}  // namespace fusionllm::runtime
