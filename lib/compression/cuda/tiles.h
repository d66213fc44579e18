// Sums over the tiles of a tensor that come before one, while other blocks are at theirs. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lib/kernels/cuda/launch.h"

namespace fusionllm::compression::cuda {

// Two sums in one: elements above the k-th magnitude, elements equal to it; and whether they are a tile's own, or also all before it.
inline constexpr int kAboveShift = 31;
inline constexpr unsigned long long kEqualMask = (1ull << kAboveShift) - 1;
inline constexpr unsigned long long kOwnSum = 1ull << 62, kSumThrough = 1ull << 63, kSumMask = kOwnSum - 1;

// The sum over the tiles before; all threads must come, and get it. A block waits for tiles that were taken up before its own alone, by
// blocks that have published their own sums or will without waiting; so it ends in whatever order blocks run.
__device__ inline unsigned long long SumOfTilesBefore(volatile unsigned long long* tiles, uint32_t tile, unsigned long long own) {
  __shared__ uint32_t nearest;  // of the sums looked at, the one that says all before it
  if (threadIdx.x == 0) tiles[tile] = own | (tile == 0 ? kSumThrough : kOwnSum);
  unsigned long long before = 0;
  for (int64_t last = static_cast<int64_t>(tile) - 1; last >= 0; last -= kernels::cuda::kThreads) {
    const int64_t i = last - threadIdx.x;
    if (threadIdx.x == 0) nearest = kernels::cuda::kThreads;
    __syncthreads();
    unsigned long long sum = i < 0 ? kSumThrough : 0;
    while (sum == 0) sum = tiles[i];
    if (sum >= kSumThrough) atomicMin(&nearest, threadIdx.x);
    __syncthreads();
    const uint32_t end = nearest;
    before += kernels::cuda::SumOverBlock(threadIdx.x <= end ? sum & kSumMask : 0ull);
    if (end < kernels::cuda::kThreads) break;
  }
  if (threadIdx.x == 0 && tile > 0) tiles[tile] = (before + own) | kSumThrough;
  return before;
}

}  // namespace fusionllm::compression::cuda
