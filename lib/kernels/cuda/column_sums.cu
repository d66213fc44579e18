#include "lib/kernels/cuda/column_sums.h"

#include <algorithm>

#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

// A block sums a strip of columns over a stretch of rows; a second launch adds the stretches in their order.
constexpr int kStrip = 32;
constexpr int kRowsAtOnce = 8;
constexpr int64_t kMaxStretches = 128;

int64_t Stretches(int64_t rows) { return std::clamp<int64_t>(rows / 128, 1, kMaxStretches); }

template <typename T>
__global__ void SumStretch(const T* matrix, int64_t rows, int64_t columns, int64_t stretches, float* partial) {
  __shared__ float tile[kRowsAtOnce][kStrip];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kStrip + threadIdx.x;
  const int64_t stretch = blockIdx.y;
  const int64_t first = stretch * rows / stretches, last = (stretch + 1) * rows / stretches;
  float sum = 0;
  if (column < columns) {
    for (int64_t row = first + threadIdx.y; row < last; row += kRowsAtOnce) sum += matrix[row * columns + column];
  }
  tile[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 1; i < kRowsAtOnce; ++i) sum += tile[i][threadIdx.x];
  partial[stretch * columns + column] = sum;
}

// The same with four columns a thread, which it reads at once: 128 columns a block.
template <typename T>
__global__ void SumStretchByQuads(const T* matrix, int64_t rows, int64_t quads, int64_t stretches, float* partial) {
  __shared__ float4 tile[kRowsAtOnce][kStrip];
  const int64_t quad = static_cast<int64_t>(blockIdx.x) * kStrip + threadIdx.x;
  const int64_t stretch = blockIdx.y;
  const int64_t first = stretch * rows / stretches, last = (stretch + 1) * rows / stretches;
  float4 sum = make_float4(0, 0, 0, 0);
  if (quad < quads) {
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < last; row += kRowsAtOnce) {
      const Quad<T> q = reinterpret_cast<const Quad<T>*>(matrix)[row * quads + quad];
      sum = make_float4(sum.x + q.x, sum.y + q.y, sum.z + q.z, sum.w + q.w);
    }
  }
  tile[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || quad >= quads) return;
  for (int i = 1; i < kRowsAtOnce; ++i) {
    const float4 more = tile[i][threadIdx.x];
    sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
  }
  reinterpret_cast<float4*>(partial)[stretch * quads + quad] = sum;
}

__global__ void AddStretches(const float* partial, int64_t stretches, int64_t columns, bool accumulate, float* sums) {
  for (int64_t column = FirstElement(); column < columns; column += ElementStride()) {
    float sum = 0;
    for (int64_t i = 0; i < stretches; ++i) sum += partial[i * columns + column];
    sums[column] = sum + (accumulate ? sums[column] : 0.0f);
  }
}

template <typename T>
cudaError_t Sum(cudaStream_t stream, const T* matrix, int64_t rows, int64_t columns, bool accumulate, void* workspace, float* sums) {
  const int64_t stretches = Stretches(rows);
  auto* partial = static_cast<float*>(workspace);
  const bool by_quads = columns % 4 == 0;
  const int64_t strips = ((by_quads ? columns / 4 : columns) + kStrip - 1) / kStrip;
  const dim3 grid(static_cast<unsigned>(strips), static_cast<unsigned>(stretches)), block(kStrip, kRowsAtOnce);
  const cudaError_t error = by_quads ? Launch(stream, grid, block, 0, SumStretchByQuads<T>, matrix, rows, columns / 4, stretches, partial)
                                     : Launch(stream, grid, block, 0, SumStretch<T>, matrix, rows, columns, stretches, partial);
  if (error != cudaSuccess) return error;
  return Launch(stream, BlocksFor(columns), kThreads, 0, AddStretches, static_cast<const float*>(partial), stretches, columns, accumulate,
                sums);
}

}  // namespace

size_t ColumnSumsWorkspaceBytes(int64_t rows, int64_t columns) { return sizeof(float) * static_cast<size_t>(Stretches(rows) * columns); }

cudaError_t SumColumns(cudaStream_t stream, const float* matrix, int64_t rows, int64_t columns, bool accumulate, void* workspace,
                       float* sums) {
  return Sum(stream, matrix, rows, columns, accumulate, workspace, sums);
}
cudaError_t SumColumns(cudaStream_t stream, const Bf16* matrix, int64_t rows, int64_t columns, bool accumulate, void* workspace,
                       float* sums) {
  return Sum(stream, matrix, rows, columns, accumulate, workspace, sums);
}

cudaError_t TakeSums(cudaStream_t stream, const float* made, int64_t columns, bool accumulate, float* sums) {
  return Launch(stream, BlocksFor(columns), kThreads, 0, AddStretches, made, int64_t{1}, columns, accumulate, sums);
}

}  // namespace fusionllm::kernels::cuda
