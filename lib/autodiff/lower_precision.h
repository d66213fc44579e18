// Mixed precision as a graph pass: activations and their gradients become bf16, whatever is summed up over time stays f32.
//
// A pass over types alone: ops, edges and shapes are as before, so plans, cuts and the order of sums are, too. It runs after types were
// inferred; the shape rules know f32 only, so nothing may infer types of the result again. What a kernel does with such types is said in
// lib/kernels/upcast_kernel.h.
//
// bf16 becomes
//   - a forward value that another forward op reads and that holds what a gradient may flow through: an op's first output, or any of a
//     split. What only backward ops read (saved means and sums) stays f32: it is small, and differences of it matter. So do placeholders
//     and constants, which are data, scalars, and what is computed from a loss;
//   - a backward value that is a gradient, or a part of one, of a bf16 value.
// Gradients of parameters stay f32, since the runtime adds up those of a step's micro-batches in them; parameters and the optimizer's
// state stay f32.
#pragma once

#include "absl/status/status.h"
#include "lib/autodiff/training_graph.h"

namespace fusionllm::autodiff {

// `training`: Differentiate's result. Errors: those of CheckPrecision, which would be a fault of this pass; `training` is then unspecified.
absl::Status LowerPrecision(TrainingGraph& training);

// What the runtime and the kernels rely on, beyond opdag::Verify, in fp32 and in bf16: parameters, their gradients and the loss are what
// they are in fp32, a gradient has the type of its value, and no value has another floating type than f32 and bf16.
// Errors: InvalidArgument naming the value.
absl::Status CheckPrecision(const TrainingGraph& training);

}  // namespace fusionllm::autodiff
