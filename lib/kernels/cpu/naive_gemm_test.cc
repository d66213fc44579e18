#include "lib/kernels/cpu/naive_gemm.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "lib/base/philox.h"

namespace fusionllm::kernels::cpu {
namespace {

struct ProductCase {
  const char* name;
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  float alpha, beta;
};

// A matrix stored with two columns more than it has; those are NaN, so that code that reads them shows it.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, uint64_t seed) : ld(columns + 2), values(static_cast<size_t>(rows * ld), std::nanf("")) {
    const base::CounterRng random(seed, "matrix");
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j)
        values[static_cast<size_t>(i * ld + j)] = 2 * random.Uniform(static_cast<uint64_t>(i * columns + j)) - 1;
    }
  }
  float at(int64_t row, int64_t column) const { return values[static_cast<size_t>(row * ld + column)]; }
  int64_t ld;
  std::vector<float> values;
};

TEST(NaiveGemmTest, IsTheProduct) {
  const ProductCase cases[] = {
      {"smaller than a panel", false, false, 3, 5, 7, 1, 0},
      {"several panels both ways", false, false, 9, 300, 130, 1, 0},
      {"a turned", true, false, 17, 40, 70, 1, 0},
      {"b turned", false, true, 17, 260, 70, 1, 0},
      {"both turned, added to half of what is there", true, true, 6, 257, 65, -2, 0.5f},
      {"added to what is there", false, false, 4, 8, 64, 1, 1},
      {"no k: only scaled", false, false, 2, 3, 0, 1, 0.5f},
      {"empty", false, false, 0, 0, 4, 1, 0},
  };
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Matrix a = c.transpose_a ? Matrix(c.k, c.m, 1) : Matrix(c.m, c.k, 1);
    const Matrix b = c.transpose_b ? Matrix(c.n, c.k, 2) : Matrix(c.k, c.n, 2);
    const Matrix before(c.m, c.n, 3);
    Matrix got = before;
    if (c.beta == 0) got.values.assign(got.values.size(), std::nanf(""));
    NaiveGemm({.transpose_a = c.transpose_a,
               .transpose_b = c.transpose_b,
               .m = c.m,
               .n = c.n,
               .k = c.k,
               .alpha = c.alpha,
               .a = a.values.data(),
               .lda = a.ld,
               .b = b.values.data(),
               .ldb = b.ld,
               .beta = c.beta,
               .c = got.values.data(),
               .ldc = got.ld});
    for (int64_t i = 0; i < c.m; ++i) {
      for (int64_t j = 0; j < c.n; ++j) {
        double want = c.beta * (c.beta == 0 ? 0 : before.at(i, j)), size = std::abs(want);
        for (int64_t k = 0; k < c.k; ++k) {
          const double term = double{c.alpha} * (c.transpose_a ? a.at(k, i) : a.at(i, k)) * (c.transpose_b ? b.at(j, k) : b.at(k, j));
          want += term;
          size += std::abs(term);
        }
        // k roundings of a sum of that size, and two of each term.
        ASSERT_NEAR(got.at(i, j), want, static_cast<double>(c.k + 2) * 0x1p-24 * size) << i << ", " << j;
      }
      EXPECT_TRUE(std::isnan(got.at(i, c.n))) << "written beyond row " << i;
    }
  }
}

}  // namespace
}  // namespace fusionllm::kernels::cpu
