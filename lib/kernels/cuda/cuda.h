// What the files of this back end share: how a kernel is made, and how each family lists its own.
//
// A family's file is CUDA C++ with the host's side of its kernels below them. It is compiled by nvcc where there is a toolkit, and as C++
// against emulated/cuda_runtime.h for the tests of machines without a card. Numbers are fp32 throughout (TF32 off); sums go in an order
// that depends on shapes alone, so the same inputs give the same bits on one kind of card. Nothing waits for the device but Device::Finish
// and copies to the host.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/cuda/device.h"
#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels::cuda {

using MadeKernel = absl::StatusOr<std::unique_ptr<Kernel>>;
using Factory = MadeKernel (*)(PreparedOp op, Device& device);

struct Entry {
  absl::string_view type;
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

// The kernel of any op type in the tables. `device` must outlive it. Errors: Unimplemented naming op type and back end.
MadeKernel MakeKernel(PreparedOp op, Device& device);

// Parameter updates on the device, which must outlive them.
std::unique_ptr<OptimizerKernels> MakeOptimizer(Device& device);

// On CUDA device `index` of this machine. Errors: Device::Open's.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int index);
// The device of such a back end, which owns it; null for any other back end. For what computes beside the kernels, in the same stream.
Device* DeviceOf(Backend& backend);

class DeviceKernel : public Kernel {
 public:
  DeviceKernel(PreparedOp op, Device& device) : op_(std::move(op)), device_(device) {}

 protected:
  cudaStream_t stream() const { return device_.stream(); }
  // What a launch answered, with the op's name.
  absl::Status Launched(cudaError_t error) const {
    return error == cudaSuccess ? absl::OkStatus() : ToStatus(error, absl::StrCat(op_.Prefix(), "starting its kernel"));
  }

  const PreparedOp op_;
  Device& device_;
};

template <typename K>
MadeKernel Make(PreparedOp op, Device& device) {
  return std::make_unique<K>(std::move(op), device);
}

}  // namespace fusionllm::kernels::cuda
