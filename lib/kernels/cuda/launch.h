// Starting a kernel, and how a thread finds its work. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace fusionllm::kernels::cuda {

inline constexpr int kThreads = 256;

// Blocks for `count` independent elements: as many as there are, up to what keeps every multiprocessor busy several times over; threads go
// on in strides of the whole grid (ForEach), so any number of blocks is right.
inline unsigned BlocksFor(int64_t count, int threads = kThreads, int64_t max_blocks = 132 * 16) {
  return static_cast<unsigned>(std::clamp<int64_t>((count + threads - 1) / threads, 1, max_blocks));
}

// A block for each row; blocks go on in strides of the grid.
inline constexpr unsigned kMaxBlocks = 65535;
inline unsigned BlocksForRows(int64_t rows) { return static_cast<unsigned>(std::clamp<int64_t>(rows, 1, kMaxBlocks)); }

#if defined(__CUDACC__)

#define FUSIONLLM_DYNAMIC_SHARED(type, name)                                      \
  extern __shared__ __align__(16) unsigned char fusionllm_dynamic_shared_bytes[]; \
  type* name = reinterpret_cast<type*>(fusionllm_dynamic_shared_bytes)

template <typename... Parameters, typename... Arguments>
cudaError_t Launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(Parameters...), Arguments... arguments) {
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  return cudaGetLastError();
}

#else

#define FUSIONLLM_DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(::fusionllm::kernels::cuda::emulated::DynamicShared())

template <typename... Parameters, typename... Arguments>
cudaError_t Launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(Parameters...), Arguments... arguments) {
  return emulated::LaunchGrid(stream, grid, block, shared_bytes, [=] { kernel(static_cast<Parameters>(arguments)...); });
}

#endif

// Elements that are this thread's: for (int64_t i = FirstElement(); i < count; i += ElementStride()).
__device__ inline int64_t FirstElement() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t ElementStride() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Sums over a block of at most 1,024 threads, in an order that depends on its size alone; every thread gets the sum. Whole warps only.
template <typename T>
__device__ T SumOverWarp(T value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
template <typename T>
__device__ T SumOverBlock(T value) {
  __shared__ T of_warp[32];
  value = SumOverWarp(value);
  __syncthreads();  // threads that still read the sum before
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += of_warp[w];
  return sum;
}
__device__ inline float MaxOverWarp(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}
__device__ inline float MaxOverBlock(float value) {
  __shared__ float of_warp[32];
  value = MaxOverWarp(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  float top = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) top = fmaxf(top, of_warp[w]);
  return top;
}

}  // namespace fusionllm::kernels::cuda
