// What cuDNN knows of attention: a plan for a pass, made for a card or for one that is described. The graph of its many operations is built
// by cuDNN's frontend, NVIDIA's library of headers (https://github.com/NVIDIA/cudnn-frontend).
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/kernels/cuda/attention_plan.h"

namespace fusionllm::kernels::cuda {

// Backward keeps dq in fp32, and some engines as much again: so many bytes at most, which grow as the length does. A plan that takes more
// (the library has ways that keep the gradient of scores, [length, length] for each head) is refused.
int64_t MaxAttentionWorkspaceBytes(const AttentionSpec& spec);

// The card of a handle, or one that is described as the library itself writes a device down (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION),
// for which plans are made without it.
struct CudnnAttentionTarget {
  int capability = 0;  // 90 is 9.0
  cudnnHandle_t handle = nullptr;
  absl::string_view described = {};
};

// OK where the libraries are there that plans of attention take: cuDNN, and CUDA's runtime as a shared one. Errors: LoadedCudnn's;
// FailedPrecondition, naming the library.
absl::Status LoadCudnnFrontend();

// One plan, its code compiled (by the library itself: no NVRTC is loaded). Thread-safe.
class CudnnAttentionGraph {
 public:
  // Of a forward pass no engine is taken that the library marks as one that sums in another order each time; backward adds up dq in another
  // order each time. Errors: LoadCudnnFrontend's; FailedPrecondition, too, where the frontend throws, as it does where a library lacks what
  // it looks for; Unimplemented, in the library's words, where it knows no way; Internal where the card fails.
  static absl::StatusOr<std::shared_ptr<const CudnnAttentionGraph>> Create(const AttentionSpec& spec, const CudnnAttentionTarget& target);
  ~CudnnAttentionGraph();

  int64_t workspace_bytes() const;
  std::string engine() const;  // as the library writes it, "eng9_k24=1_..."
  // In the handle's stream; `workspace` is aligned to kCudnnWorkspaceAlignment.
  absl::Status Run(cudnnHandle_t handle, const AttentionTensors& tensors, void* workspace) const;

 private:
  struct Parts;
  explicit CudnnAttentionGraph(std::unique_ptr<Parts> parts);
  const std::unique_ptr<Parts> parts_;
};

}  // namespace fusionllm::kernels::cuda
