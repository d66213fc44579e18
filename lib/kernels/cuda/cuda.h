// What the files of this back end share: how a kernel is made, and how each family lists its own.
//
// A family's file is CUDA C++ with the host's side of its kernels below them. It is compiled by nvcc where there is a toolkit, and as C++
// against emulated/cuda_runtime.h for the tests of machines without a card. Kernels compute in fp32 (TF32 off), on tensors in fp32 or, with
// element.h's Bf16 for their element type, in bf16; products of bf16 matrices, attention's too, are the tensor cores'. Sums go in an order
// that depends on shapes alone, so the same inputs give the same bits on one kind of card. Nothing waits for the device but
// Device::Synchronize and copies to the host.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/cuda/device.h"
#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels::cuda {

using KernelOrError = absl::StatusOr<std::unique_ptr<Kernel>>;
using Factory = KernelOrError (*)(PreparedOp op, Device& device);

// A kernel that takes bf16 tensors as they are, and which of the op's inputs and outputs: a letter for each, b where it must be bf16, f
// where f32, e where it may be either, - where it is f32 or no float. Parameters are f32.
struct Bf16Entry {
  Factory make = nullptr;
  absl::string_view inputs, outputs;
};

struct Entry {
  OpKind kind;
  Factory make;         // on f32
  Bf16Entry bf16 = {};  // other mixtures of types go by way of f32 copies (lib/kernels/upcast_kernel.h)
};

// A kernel for a row of ops (Backend::PrepareFused); null where their shapes or types, or what is wanted of them, are not what it is for.
using PreparedFusedOps = std::vector<PreparedFusedOp>;
using FusedFactory = KernelOrError (*)(PreparedFusedOps row, Device& device);
struct FusedEntry {
  std::array<OpKind, kMaxFusedOps> kinds;  // of the ops; kNone behind the last
  FusedFactory make;
};

std::span<const Entry> AttentionKernels();
std::span<const Entry> BatchNormKernels();
std::span<const FusedEntry> BatchNormFusions();
std::span<const Entry> ConvolutionKernels();
std::span<const Entry> ElementwiseKernels();
std::span<const FusedEntry> ElementwiseFusions();
std::span<const Entry> EmbeddingKernels();
std::span<const Entry> LinearKernels();
std::span<const FusedEntry> LinearFusions();
std::span<const Entry> LossKernels();
std::span<const Entry> MovementKernels();
std::span<const Entry> LayerNormKernels();
std::span<const FusedEntry> LayerNormFusions();
std::span<const Entry> PoolingKernels();
std::span<const Entry> ReductionKernels();
std::span<const Entry> SoftmaxKernels();

// The kernel of any op type in the tables. `device` must outlive it. Errors: Unimplemented naming op type and back end, or a type of
// tensors that are neither f32 nor bf16.
KernelOrError MakeKernel(PreparedOp op, Device& device);
// Of a row of ops as FusedEntry has them; null where there is none.
KernelOrError MakeFusedKernel(PreparedFusedOps row, Device& device);

// Parameter updates on the device, which must outlive them.
std::unique_ptr<OptimizerKernels> MakeOptimizer(Device& device);

// On CUDA device `index` of this machine. Errors: Device::Open's.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int index, AlgorithmChoice choice = AlgorithmChoice::kHeuristic);
// The device of such a back end, which owns it; null for any other back end. For what computes beside the kernels, in the same stream.
Device* DeviceOf(Backend& backend);

class DeviceKernel : public Kernel {
 public:
  DeviceKernel(PreparedOp op, Device& device) : op_(std::move(op)), device_(device) {}

 protected:
  cudaStream_t stream() const { return device_.stream(); }
  // What a launch answered, with the op's name.
  absl::Status LaunchStatus(cudaError_t error) const {
    return error == cudaSuccess ? absl::OkStatus() : ToStatus(error, absl::StrCat(op_.Prefix(), "starting its kernel"));
  }

  const PreparedOp op_;
  Device& device_;
};

template <typename K>
KernelOrError Make(PreparedOp op, Device& device) {
  return std::make_unique<K>(std::move(op), device);
}

// Whether all tensors of elements are of one type and shape, which kernels for rows are for: those of the elementwise op, and of the
// other's inputs the first so many and its output 0.
bool OfOneType(const PreparedOp& op, int inputs, const PreparedOp& elementwise);

// A family's kernel template for both types of elements; letters as in Bf16Entry.
struct Bf16;
template <template <typename> class K>
constexpr Entry OnBothTypes(OpKind kind, absl::string_view inputs, absl::string_view outputs) {
  return {kind, Make<K<float>>, {Make<K<Bf16>>, inputs, outputs}};
}

// As OutputOrNull, of any element type.
template <typename T>
T* OutputAs(const KernelArguments& arguments, int index) {
  return static_cast<size_t>(index) < arguments.outputs.size() ? arguments.outputs[index].as<T>() : nullptr;
}

}  // namespace fusionllm::kernels::cuda
