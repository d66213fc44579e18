#include "lib/kernels/cuda/sort.h"

#include <cub/device/device_radix_sort.cuh>

namespace fusionllm::kernels::cuda {

size_t SortWorkspaceBytes(int64_t count, int bits) {
  size_t bytes = 0;
  const cudaError_t error = cub::DeviceRadixSort::SortPairs<uint32_t, int32_t>(nullptr, bytes, nullptr, nullptr, nullptr, nullptr,
                                                                               static_cast<int>(count), 0, bits);
  // Without a card nothing is known, and nothing runs.
  return error == cudaSuccess ? bytes : 0;
}

cudaError_t SortByKey(cudaStream_t stream, const uint32_t* keys, const int32_t* values, int64_t count, int bits, void* workspace,
                      uint32_t* sorted_keys, int32_t* sorted_values) {
  size_t bytes = SortWorkspaceBytes(count, bits);
  return cub::DeviceRadixSort::SortPairs(workspace, bytes, keys, sorted_keys, values, sorted_values, static_cast<int>(count), 0, bits,
                                         stream);
}

}  // namespace fusionllm::kernels::cuda
