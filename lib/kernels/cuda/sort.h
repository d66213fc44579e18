// Sorting on the device: CUB's radix sort, or on the emulated card std::stable_sort.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fusionllm::kernels::cuda {

// For `count` keys below 2^bits.
size_t SortWorkspaceBytes(int64_t count, int bits);

// Keys in ascending order, and with each the value that stood beside it; equal keys stay in their order. All of the device, `count` long,
// and apart; `workspace` aligned to 256 bytes. 0 < count < 2^31.
cudaError_t SortByKey(cudaStream_t stream, const uint32_t* keys, const int32_t* values, int64_t count, int bits, void* workspace,
                      uint32_t* sorted_keys, int32_t* sorted_values);

}  // namespace fusionllm::kernels::cuda
