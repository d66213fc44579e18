// Choosing by measurement: which of several ways to do the same is the fastest on this device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/kernels/cuda/device.h"
#include "lib/tensor/memory.h"

namespace fusionllm::kernels::cuda {

int64_t SteadyNanoseconds();

// Bytes of the device's memory, zeros all of them, for what is measured to compute on. Errors: the memory's.
absl::StatusOr<tensor::MemoryBlock> AllocateZeroed(Device& device, size_t bytes);

// The number of the fastest of `ways`, of equals the first; `run` starts one in the device's stream. Blocks. Ways that fail are left out.
// Errors: the last failure where all do; InvalidArgument where there are none.
absl::StatusOr<size_t> FastestOf(Device& device, size_t ways, absl::FunctionRef<absl::Status(size_t)> run,
                                 absl::FunctionRef<int64_t()> now_ns = SteadyNanoseconds);

}  // namespace fusionllm::kernels::cuda
