// The fast CPU back end: oneDNN for matrix products and convolutions, own vector code (Highway, chosen at run time) for the rest.
//
// One factory per op type, grouped by family as in ref/. Ops that training of the built-in models hardly meets delegate to ref/: their
// factories are MakeReference.
#pragma once

#include <memory>
#include <span>

#include "lib/kernels/backend.h"
#include "lib/kernels/cpu/worker_pool.h"
#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels::cpu {

using KernelOrError = absl::StatusOr<std::unique_ptr<Kernel>>;
using Factory = KernelOrError (*)(PreparedOp op, std::shared_ptr<WorkerPool> pool);

struct Entry {
  OpKind kind;
  Factory make;
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

KernelOrError MakeReference(PreparedOp op, std::shared_ptr<WorkerPool> pool);

// Any op type in the tables, on f32 and bf16 tensors. Errors: Unimplemented naming op type and back end, or a dtype.
KernelOrError MakeKernel(PreparedOp op, std::shared_ptr<WorkerPool> pool);

// What most kernels are: an op, the pool and a Run.
class PooledKernel : public Kernel {
 public:
  PooledKernel(PreparedOp op, std::shared_ptr<WorkerPool> pool) : op_(std::move(op)), pool_(std::move(pool)) {}

 protected:
  const PreparedOp op_;
  const std::shared_ptr<WorkerPool> pool_;
};

template <typename KernelType>
KernelOrError Make(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  return std::make_unique<KernelType>(std::move(op), std::move(pool));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options);

}  // namespace fusionllm::kernels::cpu
