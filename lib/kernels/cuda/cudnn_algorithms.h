// What cuDNN knows of convolutions: the algorithms that this back end may use of those that it offers, in its own order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/kernels/cuda/convolution_plan.h"
#include "lib/kernels/cuda/cudnn.h"

namespace fusionllm::kernels::cuda {

// Of one algorithm; workspaces that are larger are not asked for, whatever is free: the choice is to depend on the shape alone.
inline constexpr int64_t kMaxConvolutionWorkspaceBytes = int64_t{512} << 20;

// What algorithms are for: the card of a handle, or one that is described (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR), for which plans are made
// without it.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* described = nullptr;
};

// A pass as cuDNN has it, and all that this is made of.
class CudnnGraph;

struct CudnnAlgorithm {
  std::shared_ptr<const CudnnGraph> graph;
  std::shared_ptr<const CudnnDescriptor> configuration, plan;
  int64_t engine = 0;  // the library's number of it
  int64_t workspace_bytes = 0;
  bool tensor_cores = false;
};

// The tensors of a plan have these numbers.
enum CudnnTensor : int64_t { kFirstTensor = 1, kSecondTensor, kResultTensor };

// The first `max` of the library's list that may be used: sums in fp32, in the same order each time; no factors rounded on the way; no
// tricks (FFT, Winograd) whose errors are those of other numbers than the factors; no compiler at run time; gradients of weights in bf16 on
// tensor cores alone. Errors: Unimplemented where there is none; ToStatus's.
absl::StatusOr<std::vector<CudnnAlgorithm>> AlgorithmsFor(const CudnnLibrary& library, const CudnnTarget& target,
                                                          const ConvolutionSpec& spec, size_t max);

// What a plan runs on, all of the device: tensors by their numbers, and a workspace, which may be null where it takes none.
absl::StatusOr<CudnnDescriptor> DataOf(const CudnnLibrary& library, const void* first, const void* second, void* result, void* workspace);

}  // namespace fusionllm::kernels::cuda
