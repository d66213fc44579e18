// Convolutions on the device, by cuDNN where there is one, else by plain gathers. Images are NHWC, and weights lie as cuDNN is fast with
// them: [out, height, width, in of a group].
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cuda/device.h"
#include "lib/tensor/dtype.h"

namespace fusionllm::kernels::cuda {

enum class ConvolutionPass {
  kForward,     // x, weight -> y
  kGradInput,   // dy, weight -> dx
  kGradWeight,  // x, dy -> dweight
};

// What the three tensors of a pass hold. Sums are fp32 in each case, in an order that depends on the spec and the kind of card alone.
enum class ConvolutionPrecision {
  kFloat,        // f32 with fp32 products: no TF32
  kBf16,         // bf16, and the result is rounded once
  kBf16InFloat,  // f32 whose factors hold numbers of bf16; the result is not rounded. TF32 units may multiply, which lose nothing of them
};

struct ConvolutionSpec {
  ConvolutionPass pass;
  ConvolutionPrecision precision;
  ConvolutionShape shape;
  auto operator<=>(const ConvolutionSpec&) const = default;

  tensor::DType dtype() const { return precision == ConvolutionPrecision::kBf16 ? tensor::DType::kBF16 : tensor::DType::kF32; }
  // "the gradient of the weights of a convolution of [32, 56, 56, 64] to [32, 56, 56, 64] by 3x3 (...) in f32"
  std::string ToString() const;
};

// Prepared once for a spec; holds what the library wants to keep of it.
class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  // Overwrites `result`. All of the device, tensors aligned to tensor::kAlignment and so is `workspace`.
  virtual absl::Status Run(const void* first, const void* second, void* result, void* workspace) const = 0;
};
using ConvolutionPlanOrError = absl::StatusOr<std::unique_ptr<ConvolutionPlan>>;

// By cuDNN; where it cannot be loaded or knows no way for the spec, by gathers, and the log says so: once for the library, once for each
// spec. A machine without it trains, and its user learns why it is slow. `device` must outlive the plan. Errors: only what a card answers
// that cuDNN cannot be asked on.
ConvolutionPlanOrError PrepareConvolution(Device& device, const ConvolutionSpec& spec);

// The two ways. Errors: FailedPrecondition, naming the library, where cuDNN cannot be loaded; Unimplemented where it knows no way.
ConvolutionPlanOrError PrepareCudnnConvolution(Device& device, const ConvolutionSpec& spec);
std::unique_ptr<ConvolutionPlan> PrepareDirectConvolution(Device& device, const ConvolutionSpec& spec);

}  // namespace fusionllm::kernels::cuda
