// Sums over rows, by column: gradients of weights and biases of norms, statistics of batch norm. For .cu files.
//
// A block of 32 by 8 threads takes 32 columns over a stretch of rows; what the stretches found is put together in an order that depends on
// their number alone.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {

inline constexpr int kStrip = 32;
inline constexpr int kRowsAtOnce = 8;
inline constexpr int64_t kMaxStretches = 64;

inline int64_t Stretches(int64_t rows) { return std::clamp<int64_t>(rows / 64, 1, kMaxStretches); }
inline dim3 StripGrid(int64_t columns, int64_t stretches) {
  return {static_cast<unsigned>((columns + kStrip - 1) / kStrip), static_cast<unsigned>(stretches)};
}

// Every thread of a column gets the column's sum over the block's rows of threads.
template <int kColumns = kStrip, int kRows = kRowsAtOnce, typename T>
__device__ T SumOverStrip(T value) {
  __shared__ T tile[kRows][kColumns];
  __syncthreads();
  tile[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < kRows; ++i) sum += tile[i][threadIdx.x];
  return sum;
}

struct Stretch {
  int64_t first, last;
};
__device__ inline Stretch StretchOf(int64_t number, int64_t stretches, int64_t rows) {
  return {number * rows / stretches, (number + 1) * rows / stretches};
}

// Of each stretch: the sums of dy * (x - mean) * rstd and of dy. mean and rstd are those of the row (layer norm) or of the column (batch
// norm).
template <bool kByRow, typename T>
__global__ void SumGradients(const T* x, const T* dy, const float* means, const float* rstds, int64_t rows, int64_t columns,
                             int64_t stretches, float* partials) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kStrip + threadIdx.x;
  const Stretch stretch = StretchOf(blockIdx.y, stretches, rows);
  float products = 0, sum = 0;
  for (int64_t row = stretch.first + threadIdx.y; row < stretch.last && column < columns; row += kRowsAtOnce) {
    const int64_t s = kByRow ? row : column;
    const float g = dy[row * columns + column];
    products += g * (x[row * columns + column] - means[s]) * rstds[s];
    sum += g;
  }
  products = SumOverStrip(products);
  sum = SumOverStrip(sum);
  if (threadIdx.y != 0 || column >= columns) return;
  partials[(2 * blockIdx.y) * columns + column] = products;
  partials[(2 * blockIdx.y + 1) * columns + column] = sum;
}

// What the stretches found is little, and many threads are to ask for it at once: blocks of 8 columns, each of whose 32 threads takes every
// 32nd stretch.
inline constexpr int kJoinColumns = 8;
inline constexpr int kJoinRows = 32;
inline unsigned JoinBlocks(int64_t columns) { return static_cast<unsigned>((columns + kJoinColumns - 1) / kJoinColumns); }

// dweight and dbias from the stretches; either may be null. `sums`: where both are kept for the next kernel, or null.
template <typename Sum>
__global__ void AddGradients(const float* partials, int64_t stretches, int64_t columns, float* dweight, float* dbias, bool add_weight,
                             bool add_bias, float* sums) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kJoinColumns + threadIdx.x;
  Sum products = 0, sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.y; i < stretches && column < columns; i += kJoinRows) {
    products += partials[(2 * i) * columns + column];
    sum += partials[(2 * i + 1) * columns + column];
  }
  products = SumOverStrip<kJoinColumns, kJoinRows>(products);
  sum = SumOverStrip<kJoinColumns, kJoinRows>(sum);
  if (threadIdx.y != 0 || column >= columns) return;
  if (sums != nullptr) {
    sums[column] = static_cast<float>(products);
    sums[columns + column] = static_cast<float>(sum);
  }
  if (dweight != nullptr) dweight[column] = static_cast<float>(products) + (add_weight ? dweight[column] : 0.0f);
  if (dbias != nullptr) dbias[column] = static_cast<float>(sum) + (add_bias ? dbias[column] : 0.0f);
}

inline cudaError_t LaunchAddGradients(cudaStream_t stream, const float* partials, int64_t stretches, int64_t columns, float* dweight,
                                      float* dbias, bool add_weight, bool add_bias, float* sums) {
  return Launch(stream, JoinBlocks(columns), dim3(kJoinColumns, kJoinRows), 0, AddGradients<double>, partials, stretches, columns, dweight,
                dbias, add_weight, add_bias, sums);
}

}  // namespace fusionllm::kernels::cuda
