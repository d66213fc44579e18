// Ops on bf16 tensors, on back ends whose kernels compute in fp32.
//
// What bf16 means to every back end: an op computes in fp32 on its bf16 inputs widened, and rounds each bf16 output once, to nearest even
// (lib/tensor/bf16.h). An op that multiplies matrices (linear, conv2d, their gradients, matmul) and that reads or writes a bf16 tensor
// takes all factors and its bias in bf16, as PyTorch's autocast does: those that are f32 are rounded first. Everything else that is f32
// stays as it is: parameters of norms and embeddings, statistics, and gradients of parameters, which are added up in fp32.
//
// The adaptor keeps fp32 copies of bf16 inputs and outputs and of rounded factors in its workspace, beside that of the kernel it wraps.
// It is as deterministic as that kernel, and gives its bits, rounded.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kernels/backend.h"
#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels {

// Conversions as tensor::UpcastBf16 and RoundToBf16 make them, at the speed of a back end and in its memory. Stretches of memory do not
// overlap. Errors: those of starting work on a device; the host has none.
class Bf16Conversion {
 public:
  virtual ~Bf16Conversion() = default;
  virtual absl::Status Upcast(const uint16_t* from, float* to, int64_t count) const = 0;
  virtual absl::Status Round(const float* from, uint16_t* to, int64_t count) const = 0;
  // To the float that Upcast would make of Round's result.
  virtual absl::Status RoundFloats(const float* from, float* to, int64_t count) const = 0;
};

// Plain loops on the caller's thread.
std::shared_ptr<const Bf16Conversion> PlainBf16Conversion();

// Whether the op has a bf16 tensor that has to be widened: where elements are only moved, and all have the same size, none has.
bool NeedsUpcast(const PreparedOp& op);

// Makes a kernel of the op with f32 in bf16's place. Errors: `make`'s. Run's: the kernel's and the conversion's; InvalidArgument where it
// is to add to a bf16 output.
using MakeF32Kernel = absl::FunctionRef<absl::StatusOr<std::unique_ptr<Kernel>>(PreparedOp)>;
absl::StatusOr<std::unique_ptr<Kernel>> MakeUpcastKernel(const PreparedOp& op, MakeF32Kernel make,
                                                         std::shared_ptr<const Bf16Conversion> conversion);

}  // namespace fusionllm::kernels
