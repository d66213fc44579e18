// Tiles of heads in shared memory and what a warp multiplies of them: the parts of which attention on tensor cores is made. For .cu files.
//
// A tile has rows of kHead bf16, in pieces of 16 bytes: piece p of row r lies at p ^ r % 8, so that the 8 rows of a matrix that ldmatrix
// takes are in 8 different groups of banks, whether they are its rows or its columns in a product. Heads that are smaller have zeros behind
// them. Blocks have 4 warps. Sums of a warp are fragments [i][j][4]: 16 i rows down and 8 j columns right (tensor_cores.h).
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/tensor_cores.h"

namespace fusionllm::kernels::cuda {

inline constexpr int kTileThreads = 128;
inline constexpr float kLog2OfE = 1.44269504f;

// Computed where they stand, each time: what compilers would keep of them in registers for as long as a loop lasts, sums need.
__device__ inline uint32_t XorHere(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  asm volatile("xor.b32 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
#else
  return a ^ b;
#endif
}
__device__ inline uint32_t ThreadHere() {
#if defined(__CUDACC__)
  uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#else
  return threadIdx.x;
#endif
}

template <int kHead>
struct Tile {
  static constexpr int kPieces = kHead / 8;
  static constexpr uint32_t kRowBytes = 2 * kHead;
  static_assert(kPieces % 8 == 0 && kTileThreads / kPieces % 8 == 0);

  __device__ static uint32_t At(int row, int piece) { return static_cast<uint32_t>(row) * kRowBytes + (piece ^ row % 8) * 16; }

  // Begins to bring kRows rows, `stride` elements apart, of which `there` are; zeros for the others and behind `size` components.
  template <int kRows>
  __device__ static void CopyAsync(uint32_t tile, const Bf16* from, int64_t stride, int there, int size) {
    constexpr int kStep = kTileThreads / kPieces;
    const uint32_t thread = ThreadHere();
    const int piece = static_cast<int>(thread % kPieces), row = static_cast<int>(thread / kPieces);
    if (piece * 8 >= size) there = 0;
    const Bf16* at = from + row * stride + piece * 8;
    const uint32_t to = tile + At(row, piece);
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      Copy16Async(to + i * kStep * kRowBytes, row + i * kStep < there ? at : from, row + i * kStep < there);
      at += kStep * stride;
    }
  }

  // Components 16 k .. 16 k + 15 of rows `row` .. + 15 (a multiple of 8), as a left factor; and as two right factors, whose rows are
  // the tile's columns (so a product with the tile transposed), or the tile's rows.
  __device__ static Words Left(uint32_t tile, int row, int k) { return LoadMatrices(Place(tile, row, k, RowOfLane())); }
  __device__ static Words RightTransposed(uint32_t tile, int row, int k) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return LoadMatrices(Place(tile, row, k, At(lane / 16 * 8 + lane % 8, lane / 8 % 2)));
  }
  __device__ static Words Right(uint32_t tile, int row, int k) { return LoadMatricesTransposed(Place(tile, row, k, RowOfLane())); }

  // Writes the warp's sums as bf16 to `rows` rows in memory, by way of rows `first` .. of a tile of which no other warp reads, so that
  // 16 bytes go out at once.
  template <int kDown>
  __device__ static void Store(const float (&sums)[kDown][kHead / 8][4], uint32_t tile, int first, Bf16* to, int64_t stride, int rows,
                               int size) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kHead / 8; ++j) {
        const uint32_t at = tile + At(first + 16 * i + lane / 4, j) + lane % 4 * 4;
        StoreShared(at, PackBf16(sums[i][j][0], sums[i][j][1]));
        StoreShared(at + 8 * kRowBytes, PackBf16(sums[i][j][2], sums[i][j][3]));
      }
    }
    __syncwarp();
    const int piece = lane % kPieces;
    for (int row = lane / kPieces; row < 16 * kDown; row += 32 / kPieces) {
      const Words words = LoadShared16(tile + At(first + row, piece));
      if (row < rows && piece * 8 < size) *reinterpret_cast<Words*>(to + row * stride + piece * 8) = words;
    }
  }

 private:
  __device__ static uint32_t RowOfLane() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return At(lane % 16, lane / 16);
  }
  // 8 rows on the pieces lie in the same order, and two pieces on differ in the bits above the lane's.
  __device__ static uint32_t Place(uint32_t tile, int row, int k, uint32_t of_lane) {
    return tile + static_cast<uint32_t>(row) * kRowBytes + XorHere(of_lane, static_cast<uint32_t>(k) * 32);
  }
};

// Rows of a warp that are left factors of many products: in registers, or read again for each.
template <int kHead, int kDown, bool kInRegisters>
class LeftRows {
 public:
  // `first`: the warp's first row in the tile, which has arrived.
  __device__ LeftRows(uint32_t tile, int first) : tile_(tile), first_(first) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int k = 0; k < kHead / 16; ++k) kept_[i][k] = Tile<kHead>::Left(tile, first + 16 * i, k);
      }
    }
  }
  __device__ Words At(int i, int k) const {
    if constexpr (kInRegisters) return kept_[i][k];
    return Tile<kHead>::Left(tile_, first_ + 16 * i, k);
  }

 private:
  const uint32_t tile_;
  const int first_;
  Words kept_[kInRegisters ? kDown : 1][kInRegisters ? kHead / 16 : 1];
};

// sums = left * (rows `row` .. + 8 kAcross - 1 of the tile)^T.
template <int kHead, int kDown, int kAcross, bool kInRegisters>
__device__ inline void Scores(float (&sums)[kDown][kAcross][4], const LeftRows<kHead, kDown, kInRegisters>& left, uint32_t tile, int row) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0;
  }
#pragma unroll
  for (int k = 0; k < kHead / 16; ++k) {
    Words factors[kDown];
#pragma unroll
    for (int i = 0; i < kDown; ++i) factors[i] = left.At(i, k);
#pragma unroll
    for (int j = 0; j < kAcross; j += 2) {
      const Words right = Tile<kHead>::RightTransposed(tile, row + 8 * j, k);
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        MultiplyAdd(sums[i][j], factors[i], right.words[0], right.words[1]);
        MultiplyAdd(sums[i][j + 1], factors[i], right.words[2], right.words[3]);
      }
    }
  }
}

// Scores of which `seen`(row, column), counted from the warp's first of each, is false become -infinity.
template <int kDown, int kAcross, typename Seen>
__device__ inline void Hide(float (&scores)[kDown][kAcross][4], Seen seen) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kAcross; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (!seen(16 * i + c / 2 * 8 + lane / 4, 8 * j + lane % 4 * 2 + c % 2)) scores[i][j][c] = -INFINITY;
      }
    }
  }
}

// A warp's left factors that were sums: rounded to bf16, two fragments side by side are one.
template <int kDown, int kAcross>
struct Weights {
  Weights() = default;
  __device__ explicit Weights(const float (&sums)[kDown][kAcross][4]) {
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int k = 0; k < kAcross / 2; ++k) {
        const float(&near)[4] = sums[i][2 * k], (&far)[4] = sums[i][2 * k + 1];
        factors[i][k] = {{PackBf16(near[0], near[1]), PackBf16(near[2], near[3]), PackBf16(far[0], far[1]), PackBf16(far[2], far[3])}};
      }
    }
  }
  Words factors[kDown][kAcross / 2];
};

// sums += weights * rows `row` .. + 8 kAcross - 1 of the tile.
template <int kHead, int kDown, int kAcross>
__device__ inline void AddWeighted(float (&sums)[kDown][kHead / 8][4], const Weights<kDown, kAcross>& weights, uint32_t tile, int row) {
#pragma unroll
  for (int k = 0; k < kAcross / 2; ++k) {
#pragma unroll
    for (int j = 0; j < kHead / 16; ++j) {
      const Words right = Tile<kHead>::Right(tile, row + 16 * k, j);
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
        MultiplyAdd(sums[i][2 * j], weights.factors[i][k], right.words[0], right.words[1]);
        MultiplyAdd(sums[i][2 * j + 1], weights.factors[i][k], right.words[2], right.words[3]);
      }
    }
  }
}

}  // namespace fusionllm::kernels::cuda
