// In place of CUB.
#include "lib/kernels/cuda/sort.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace fusionllm::kernels::cuda {

size_t SortWorkspaceBytes(int64_t, int) { return 0; }

cudaError_t SortByKey(cudaStream_t stream, const uint32_t* keys, const int32_t* values, int64_t count, int, void*, uint32_t* sorted_keys,
                      int32_t* sorted_values) {
  return emulated::RunOnDevice(stream, [=] {
    std::vector<int64_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
    for (int64_t i = 0; i < count; ++i) {
      sorted_keys[i] = keys[order[i]];
      sorted_values[i] = values[order[i]];
    }
  });
}

}  // namespace fusionllm::kernels::cuda
