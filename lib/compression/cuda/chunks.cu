#include "lib/compression/cuda/chunks.h"

#include "lib/compression/cuda/device_code.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::compression::cuda {
namespace {

constexpr int kScanThreads = 1024;

// One block; each thread takes a run of counts.
__global__ void SumBeforeEach(unsigned long long* counts, int64_t chunks) {
  const int64_t run = (chunks + kScanThreads - 1) / kScanThreads;
  const int64_t first = threadIdx.x * run, end = first + run < chunks ? first + run : chunks;
  unsigned long long own = 0, all = 0;
  for (int64_t i = first; i < end; ++i) own += counts[i];
  unsigned long long before = SumBefore(own, &all);
  for (int64_t i = first; i < end; ++i) {
    const unsigned long long count = counts[i];
    counts[i] = before;
    before += count;
  }
}

}  // namespace

cudaError_t SumChunksBefore(cudaStream_t stream, unsigned long long* counts, int64_t chunks) {
  return kernels::cuda::Launch(stream, 1, kScanThreads, 0, SumBeforeEach, counts, chunks);
}

}  // namespace fusionllm::compression::cuda
