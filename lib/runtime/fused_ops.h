// Ops of a pass with their addresses, alone or two at a time. Internal to lib/runtime.
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

// Two neighbours of a pass that one kernel runs.
struct FusedPair {
  size_t ops = 2;  // with the views between them
  std::unique_ptr<kernels::Kernel> kernel;
  std::vector<BoundOp> bound;  // by slot; arguments of the first, then of the second
};

// Of a pass, by the position of the first op: the pairs that the back end has a kernel for (Backend::PrepareFused) and whose memory allows
// it. The memory plan may give the second op's outputs the place of the first one's inputs, which are dead then: only where the kernel can
// run in place is that left as it is. Views are looked through: ops with nothing but views between them are neighbours, and what the first
// makes is what the second reads if that is a view of it, of the same type. `bound`: by slot, then by position. Errors: the back end's.
absl::StatusOr<std::map<size_t, FusedPair>> FusePass(const opdag::Graph& graph, const Pass& pass,
                                                     const std::vector<std::vector<BoundOp>>& bound, kernels::Backend& backend);

}  // namespace fusionllm::runtime
