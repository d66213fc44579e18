#include "lib/kernels/cpu/naive_gemm.h"

#include <algorithm>

namespace fusionllm::kernels::cpu {
namespace {

// A panel of b that stays in the L2 cache while all rows of a pass by it: 64 KiB.
constexpr int64_t kPanelRows = 64, kPanelColumns = 256;

void Scale(const Gemm& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    float* row = g.c + i * g.ldc;
    if (g.beta == 0) {
      std::fill_n(row, g.n, 0.f);  // whatever was there, NaN too
    } else if (g.beta != 1) {
      for (int64_t j = 0; j < g.n; ++j) row[j] *= g.beta;
    }
  }
}

}  // namespace

void NaiveGemm(const Gemm& g) {
  Scale(g);
  float panel[kPanelRows * kPanelColumns];
  for (int64_t first_n = 0; first_n < g.n; first_n += kPanelColumns) {
    const int64_t columns = std::min(kPanelColumns, g.n - first_n);
    for (int64_t first_k = 0; first_k < g.k; first_k += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, g.k - first_k);
      for (int64_t k = 0; k < rows; ++k) {
        for (int64_t j = 0; j < columns; ++j) {
          panel[k * kPanelColumns + j] =
              g.transpose_b ? g.b[(first_n + j) * g.ldb + first_k + k] : g.b[(first_k + k) * g.ldb + first_n + j];
        }
      }
      for (int64_t i = 0; i < g.m; ++i) {
        float* const c = g.c + i * g.ldc + first_n;
        for (int64_t k = 0; k < rows; ++k) {
          const float a = g.alpha * (g.transpose_a ? g.a[(first_k + k) * g.lda + i] : g.a[i * g.lda + first_k + k]);
          const float* const b = panel + k * kPanelColumns;
          for (int64_t j = 0; j < columns; ++j) c[j] += a * b[j];
        }
      }
    }
  }
}

}  // namespace fusionllm::kernels::cpu
