// Compaction in order: kernels count what each chunk of the input keeps, the counts become sums over the chunks before, and then each chunk
// knows where its elements go.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fusionllm::compression::cuda {

inline constexpr int64_t kChunk = 4096;  // elements that a block of threads takes
inline int64_t ChunksOf(int64_t n) { return (n + kChunk - 1) / kChunk; }

// counts[i] becomes the sum of counts[0..i).
cudaError_t SumChunksBefore(cudaStream_t stream, unsigned long long* counts, int64_t chunks);

}  // namespace fusionllm::compression::cuda
