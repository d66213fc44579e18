#include "lib/kernels/cuda/column_sums.h"

#include <algorithm>

#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

// A block sums a strip of 32 columns over a stretch of rows; a second launch adds the stretches in their order.
constexpr int kStrip = 32;
constexpr int kRowsAtOnce = 8;
constexpr int64_t kMostStretches = 64;

int64_t Stretches(int64_t rows) { return std::clamp<int64_t>(rows / 128, 1, kMostStretches); }

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
  const dim3 grid(static_cast<unsigned>((columns + kStrip - 1) / kStrip), static_cast<unsigned>(stretches));
  const cudaError_t error = Launch(stream, grid, dim3(kStrip, kRowsAtOnce), 0, SumStretch<T>, matrix, rows, columns, stretches, partial);
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

}  // namespace fusionllm::kernels::cuda
