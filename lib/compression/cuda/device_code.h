// What kernels of this folder share: magnitudes, their greatest, and prefix sums. For .cu files.
//
// A "magnitude" is the bit pattern of |x| as an integer, as in lib/compression/quantize.h. Whole warps only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fusionllm::compression::cuda {

__device__ inline uint32_t MagnitudeOf(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ inline uint32_t MaxOfWarp(uint32_t value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// Raises *max_magnitude to the greatest value of the grid's threads: one atomic operation a block.
__device__ inline void MaxOfGrid(uint32_t value, uint32_t* max_magnitude) {
  __shared__ uint32_t of_warp[32];
  value = MaxOfWarp(value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned w = 1; w < blockDim.x / 32; ++w) value = of_warp[w] > value ? of_warp[w] : value;
  if (value > 0) atomicMax(max_magnitude, value);
}

// The sum of the values of the block's threads before this one; *all: of all of them. At most 1,024 threads.
template <typename T>
__device__ T SumBefore(T value, T* all) {
  __shared__ T of_warp[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  T through = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const T below = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += below;
  }
  __syncthreads();  // threads that still read the sums before
  if (lane == 31) of_warp[warp] = through;
  __syncthreads();
  T before = 0, total = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  *all = total;
  return before + through - value;
}

}  // namespace fusionllm::compression::cuda
