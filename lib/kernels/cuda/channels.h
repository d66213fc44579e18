// How kernels over rows of channels (NHWC tensors) are spread over threads, which take four channels each: across a block the quads of a
// row, as a warp reads them, and down it rows. So a thread stays with its channels and divides nothing. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace fusionllm::kernels::cuda {

inline constexpr int kQuadThreads = 256;

inline bool InQuads(int64_t channels) { return channels > 0 && channels % 4 == 0; }

// Threads across are a power of two up to a warp, and at most twice as many as there are quads.
inline dim3 QuadBlock(int64_t channels) {
  unsigned across = 1;
  while (across < 32 && across < channels / 4) across *= 2;
  return {across, kQuadThreads / across};
}
inline int64_t QuadStrips(int64_t channels) {
  const int64_t across = QuadBlock(channels).x;
  return (channels / 4 + across - 1) / across;
}
// Of a block that takes `rows_each` rows with each of its threads.
inline int64_t RowsOfBlock(int64_t channels, int64_t rows_each) { return QuadBlock(channels).y * rows_each; }

// Blocks for what goes row by row in no order: enough to keep the greatest cards busy several times over; each goes on in strides of all.
inline dim3 QuadGrid(int64_t rows, int64_t channels, int64_t rows_each) {
  const int64_t strips = QuadStrips(channels), tile = RowsOfBlock(channels, rows_each);
  return {static_cast<unsigned>(strips),
          static_cast<unsigned>(std::clamp<int64_t>((rows + tile - 1) / tile, 1, std::max<int64_t>(1, 132 * 16 / strips)))};
}

// This thread's quad of each row.
__device__ inline int64_t OwnQuad() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

// Rows that this thread deals with at once: every blockDim.y-th from `row` on, those of them that come before `last`.
struct OwnRows {
  int64_t first, apart;  // in quads of the tensor
  int rows_apart, rows_left;
  __device__ OwnRows(int64_t row, int64_t last, int64_t quad, int64_t quads)
      : first(row * quads + quad),
        apart(blockDim.y * quads),
        rows_apart(static_cast<int>(blockDim.y)),
        rows_left(static_cast<int>(last - row < (1 << 30) ? last - row : 1 << 30)) {}
  __device__ bool Has(int k) const { return k * rows_apart < rows_left; }
  // Where the quad of the k-th lies; one that is there in any case, so that all can be asked for without a branch between.
  __device__ int64_t operator[](int k) const { return first + (Has(k) ? k : 0) * apart; }
};

}  // namespace fusionllm::kernels::cuda
