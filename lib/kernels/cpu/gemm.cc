#include "lib/kernels/cpu/gemm.h"

#include <algorithm>

namespace fusionllm::kernels::cpu {

void Multiply(WorkerPool& pool, const Gemm& gemm, absl::FunctionRef<void(int64_t, int64_t)> after_block) {
  pool.Run(ChunkCount(gemm.m, kGemmRows), [&](int64_t chunk, int) {
    const int64_t first = chunk * kGemmRows;
    Gemm block = gemm;
    block.m = std::min(kGemmRows, gemm.m - first);
    block.a += gemm.transpose_a ? first : first * gemm.lda;
    block.c += first * gemm.ldc;
    Multiply(block);
    after_block(first, block.m);
  });
}

int64_t TransposeWorkspaceFloats(const Gemm& gemm) {
  constexpr int64_t kWorthRows = 512;  // uses of each turned element
  constexpr int64_t kWorthColumns = 64;
  return gemm.transpose_b && gemm.m >= kWorthRows && gemm.n >= kWorthColumns && gemm.k >= kWorthColumns ? gemm.n * gemm.k : 0;
}

Gemm TransposeB(WorkerPool& pool, const Gemm& gemm, float* workspace) {
  if (TransposeWorkspaceFloats(gemm) == 0) return gemm;
  // Tiles of 16 by 64 floats: both sides stay in the L1 cache, and every cache line is used whole.
  constexpr int64_t kTileRows = 64, kTileColumns = 16;
  pool.Run(ChunkCount(gemm.k, kTileColumns), [&](int64_t chunk, int) {
    const int64_t last_k = std::min(gemm.k, (chunk + 1) * kTileColumns);
    for (int64_t tile = 0; tile < gemm.n; tile += kTileRows) {
      const int64_t last_n = std::min(gemm.n, tile + kTileRows);
      for (int64_t k = chunk * kTileColumns; k < last_k; ++k) {
        for (int64_t n = tile; n < last_n; ++n) workspace[k * gemm.n + n] = gemm.b[n * gemm.ldb + k];
      }
    }
  });
  Gemm turned = gemm;
  turned.transpose_b = false;
  turned.b = workspace;
  turned.ldb = gemm.n;
  return turned;
}

void Multiply(WorkerPool& pool, const Gemm& gemm) {
  Multiply(pool, gemm, [](int64_t, int64_t) {});
}

}  // namespace fusionllm::kernels::cpu
