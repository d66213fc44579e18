#include "lib/job/default_micro_batch.h"

#include <algorithm>

namespace fusionllm::job {

int64_t DefaultMicroBatchSize(int64_t global_batch_size) {
  constexpr int64_t kMicroBatches = 8;
  for (int64_t size = std::max<int64_t>(1, global_batch_size / kMicroBatches); size > 1; --size) {
    if (global_batch_size % size == 0) return size;
  }
  return 1;
}

}  // namespace fusionllm::job
