// Row-major single-precision matrix products by oneDNN's dnnl_sgemm (or what stands in for it, onednn.h), split over threads by rows of
// the result.
#pragma once

#include <cstdint>

#include "lib/kernels/cpu/worker_pool.h"

namespace fusionllm::kernels::cpu {

struct Gemm {
  bool transpose_a = false;  // a is stored [k, m]
  bool transpose_b = false;  // b is stored [n, k]
  int64_t m = 0, n = 0, k = 0;
  float alpha = 1;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float beta = 0;  // 0: c is overwritten, whatever it holds
  float* c = nullptr;
  int64_t ldc = 0;
};

// c = alpha op(a) op(b) + beta c, in the calling thread. The thread must be under SingleThreadedOneDnn or inside WorkerPool::Run.
void Multiply(const Gemm& gemm);

// The same in blocks of kGemmRows rows over the pool; after_block(first_row, rows) runs on each finished block while it is in cache.
inline constexpr int64_t kGemmRows = 128;
void Multiply(WorkerPool& pool, const Gemm& gemm, absl::FunctionRef<void(int64_t, int64_t)> after_block);
void Multiply(WorkerPool& pool, const Gemm& gemm);

// For a tall a and a b stored transposed (weights), turning b round first pays: dnnl_sgemm reads it 10 to 20 % slower transposed.
// Floats of workspace that TransposeB wants; 0 when it would leave the product as it is.
int64_t TransposeWorkspaceFloats(const Gemm& gemm);
// The same product with b stored plainly in the workspace, or `gemm` itself when TransposeWorkspaceFloats is 0.
Gemm TransposeB(WorkerPool& pool, const Gemm& gemm, float* workspace);

}  // namespace fusionllm::kernels::cpu
