#include "lib/kernels/cpu/gemm.h"

#include <algorithm>
#include <cstdlib>

#include "oneapi/dnnl/dnnl.h"

namespace fusionllm::kernels::cpu {

void Multiply(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  const dnnl_status_t status =
      dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, g.alpha, g.a, g.lda, g.b, g.ldb, g.beta, g.c, g.ldc);
  // It refuses only malformed sizes: our own bug.
  if (status != dnnl_success) std::abort();
}

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

void Multiply(WorkerPool& pool, const Gemm& gemm) {
  Multiply(pool, gemm, [](int64_t, int64_t) {});
}

}  // namespace fusionllm::kernels::cpu
