// cuDNN as the ops of one device use it.
#pragma once

#include <cudnn.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "lib/kernels/cuda/cudnn.h"
#include "lib/kernels/cuda/device.h"

namespace fusionllm::kernels::cuda {

// The library with a handle whose stream is the device's: one for each Device, so that one stage's work never leads into another's stream.
struct CudnnHandle {
  const CudnnLibrary& library;
  cudnnHandle_t handle = nullptr;
};

// Lives as long as the device. Errors: FailedPrecondition, naming the library, where it cannot be loaded.
absl::StatusOr<const CudnnHandle*> CudnnOf(Device& device);

// What the library takes for granted of workspaces is not said; this is what its own examples have.
inline constexpr size_t kCudnnWorkspaceAlignment = 256;
// Room for a workspace that is aligned in it, and where that begins.
inline size_t CudnnWorkspaceBytes(int64_t bytes) { return bytes == 0 ? 0 : static_cast<size_t>(bytes) + kCudnnWorkspaceAlignment; }
inline void* CudnnWorkspace(void* room) {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(room) + kCudnnWorkspaceAlignment - 1) / kCudnnWorkspaceAlignment *
                                 kCudnnWorkspaceAlignment);
}

}  // namespace fusionllm::kernels::cuda
