// The reference kernels: obvious loops that other back ends are tested against, and that they may delegate rare ops to.
//
// One function per op type, grouped by family; each accumulates in double and rounds once. Stateless, so safe from any thread.
#pragma once

#include <memory>
#include <span>

#include "lib/kernels/backend.h"
#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels::ref {

using RunFunction = absl::Status (*)(const PreparedOp& op, const KernelArguments& arguments);

struct Entry {
  OpKind kind;
  RunFunction run;
  bool in_place = false;  // output 0 may share memory with any input of the same type
};

std::span<const Entry> AttentionKernels();
std::span<const Entry> ConvolutionKernels();
std::span<const Entry> ElementwiseKernels();
std::span<const Entry> EmbeddingKernels();
std::span<const Entry> LinearKernels();
std::span<const Entry> LossKernels();
std::span<const Entry> MovementKernels();
std::span<const Entry> NormalizationKernels();
std::span<const Entry> PoolingKernels();
std::span<const Entry> ReductionKernels();
std::span<const Entry> SoftmaxKernels();

// nullptr when there is no such op.
const Entry* Find(OpKind kind);
// The kernel of any op type in the tables, on f32 and bf16 tensors. Errors: Unimplemented naming op type and back end, or a dtype.
absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(PreparedOp op);

std::unique_ptr<Backend> CreateReferenceBackend();

}  // namespace fusionllm::kernels::ref
