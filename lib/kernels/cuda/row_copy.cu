#include "lib/kernels/cuda/row_copy.h"

#include <algorithm>

#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr unsigned kMaxBlocksAcross = 64, kMaxRowsPerPass = 65535;  // of grids

// Neighbours of a warp copy neighbours, whatever the rows are aligned to.
__global__ void CopyEachRow(const uint16_t* from, int64_t from_leading, uint16_t* to, int64_t to_leading, int64_t rows, int64_t width) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const uint16_t* const source = from + row * from_leading;
    uint16_t* const target = to + row * to_leading;
    for (int64_t i = FirstElement(); i < width; i += ElementStride()) target[i] = source[i];
  }
}

}  // namespace

cudaError_t CopyRows(cudaStream_t stream, const uint16_t* from, int64_t from_leading, uint16_t* to, int64_t to_leading, int64_t rows,
                     int64_t width) {
  if (rows == 0 || width == 0) return cudaSuccess;
  const dim3 grid(BlocksFor(width, kThreads, kMaxBlocksAcross), static_cast<unsigned>(std::min<int64_t>(rows, kMaxRowsPerPass)));
  return Launch(stream, grid, kThreads, 0, CopyEachRow, from, from_leading, to, to_leading, rows, width);
}

}  // namespace fusionllm::kernels::cuda
