// Products by way of copies with padded rows are those without. On a card, or with the processor in its place.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/cuda/padded_gemm.h"
#include "lib/kernels/cuda/row_copy.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::cuda {
namespace {

using tensor::DType;
using Of = RowPadding::Of;

struct PaddedGemm {
  const char* name;
  GemmShape shape;
  Of of;
};

// A head's three products over 37 tokens, of width 24 and 43 words, and that of a weight that lies the other way round.
const std::vector<PaddedGemm>& Cases() {
  const auto in_bf16 = [](GemmShape shape, DType result) {
    shape.factors = DType::kBF16;
    shape.result = result;
    return shape;
  };
  static const auto* const cases = new std::vector<PaddedGemm>{
      {"logits", in_bf16({.transpose_b = true, .m = 37, .n = 43, .k = 24, .lda = 24, .ldb = 24, .ldc = 43, .bias = true}, DType::kBF16),
       Of::kC},
      {"gradient of the input", in_bf16({.m = 37, .n = 24, .k = 43, .lda = 43, .ldb = 24, .ldc = 24}, DType::kBF16), Of::kA},
      {"gradient of the weight", in_bf16({.transpose_a = true, .m = 43, .n = 24, .k = 37, .lda = 43, .ldb = 24, .ldc = 24}, DType::kF32),
       Of::kA},
      {"gradient of a weight that lies the other way round",
       in_bf16({.transpose_a = true, .m = 24, .n = 40, .k = 37, .lda = 24, .ldb = 43, .ldc = 40}, DType::kF32), Of::kB}};
  return *cases;
}

class CudaPaddedGemmTest : public DeviceFixture<::testing::Test> {
 protected:
  static std::vector<uint16_t> Bf16s(int64_t count, absl::string_view name) {
    const base::CounterRng rng(5, name);
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = tensor::RoundToBf16(rng.Normal(i));
    return values;
  }

  // c, where `before` was there, with what lies behind it: 64 elements that are to stay.
  std::vector<float> Multiply(const Gemm& gemm, const GemmShape& s, float beta) {
    const tensor::MemoryBlock a = Sent(Bf16s((s.transpose_a ? s.k : s.m) * s.lda, "a"));
    const tensor::MemoryBlock b = Sent(Bf16s((s.transpose_b ? s.n : s.k) * s.ldb, "b")), bias = Sent(Bf16s(s.n, "bias"));
    const std::vector<uint16_t> before = Bf16s(s.m * s.ldc + 64, "c");
    std::vector<float> in_floats(before.size());
    tensor::UpcastBf16(before, in_floats.data());
    const tensor::MemoryBlock c = s.result == DType::kBF16 ? Sent(before) : Sent(in_floats);
    const tensor::MemoryBlock workspace = *device_->memory().Allocate(gemm.workspace_bytes());
    const absl::Status ran = gemm.Run({.a = a.data(), .b = b.data(), .c = c.data(), .bias = bias.data(), .beta = beta}, workspace.data());
    EXPECT_TRUE(ran.ok()) << ran;
    if (s.result == DType::kF32) return Received<float>(c);
    tensor::UpcastBf16(Received<uint16_t>(c), in_floats.data());
    return in_floats;
  }

  void ExpectTheProduct(const PaddedGemm& c, const Gemm& gemm) {
    const auto plain = PrepareGemm(*device_, c.shape);
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const float beta : {0.0f, 1.0f}) {
      if (beta != 0 && c.shape.result == DType::kBF16) continue;
      const std::vector<float> want = Multiply(**plain, c.shape, beta), got = Multiply(gemm, c.shape, beta);
      // Sums of some forty products in another order, and perhaps on the other side of the middle between two bf16.
      const double rounding = c.shape.result == DType::kBF16 ? 0x1p-7 : 1e-6;
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], rounding * std::abs(want[i]) + 1e-5) << c.name << ", beta " << beta << ", element " << i;
      }
    }
  }
};

TEST_F(CudaPaddedGemmTest, GivesTheProductWhateverFitsIntoACopy) {
  for (const PaddedGemm& c : Cases()) {
    // A row, a few, all but one, all, and more than there are.
    for (const int64_t rows : {1, 5, 36, 37, 1000}) {
      SCOPED_TRACE(::testing::Message() << c.name << ", " << rows << " rows at once");
      const auto padding = PaddingOf(c.shape, rows * 48 * 2);
      ASSERT_TRUE(padding.has_value());
      EXPECT_EQ(padding->of, c.of);
      EXPECT_EQ(padding->leading, 48);
      EXPECT_EQ(padding->rows, 37);
      EXPECT_EQ(padding->rows_at_once, rows);
      const auto gemm = PreparePaddedGemm(*device_, c.shape, *padding);
      ASSERT_TRUE(gemm.ok()) << gemm.status();
      EXPECT_GE((*gemm)->workspace_bytes(), static_cast<size_t>(std::min<int64_t>(rows, 37) * 48 * 2));
      ExpectTheProduct(c, **gemm);
    }
  }
}

TEST_F(CudaPaddedGemmTest, WhateverIsChosenGivesTheProduct) {
  for (const AlgorithmChoice choice : {AlgorithmChoice::kHeuristic, AlgorithmChoice::kMeasured}) {
    device_->set_algorithm_choice(choice);
    for (const PaddedGemm& c : Cases()) {
      const auto gemm = PrepareProduct(*device_, c.shape);
      ASSERT_TRUE(gemm.ok()) << gemm.status();
      ExpectTheProduct(c, **gemm);
    }
  }
}

TEST_F(CudaPaddedGemmTest, NothingIsCopiedUnlessItIsMeasured) {
  const GemmShape shape = Cases()[0].shape;
  const auto product = PrepareProduct(*device_, shape), plain = PrepareGemm(*device_, shape);
  ASSERT_TRUE(product.ok() && plain.ok()) << product.status() << plain.status();
  EXPECT_EQ((*product)->workspace_bytes(), (*plain)->workspace_bytes());
}

TEST_F(CudaPaddedGemmTest, ProductsThatHaveWholeVectorsOrCannotBeMadeInStretchesAreLeftAlone) {
  const GemmShape logits = Cases()[0].shape, grad_input = Cases()[1].shape, grad_weight = Cases()[2].shape;
  const auto left_alone = [](GemmShape shape, auto change) {
    change(shape);
    return !PaddingOf(shape, 1 << 20).has_value();
  };
  EXPECT_TRUE(left_alone(logits, [](GemmShape& s) { s.n = s.ldc = 48; })) << "whole vectors";
  EXPECT_TRUE(left_alone(logits, [](GemmShape& s) { s.factors = s.result = DType::kF32; })) << "fp32";
  EXPECT_TRUE(left_alone(logits, [](GemmShape& s) { s.batch = 2; }));
  EXPECT_TRUE(left_alone(logits, [](GemmShape& s) { s.extra = GemmExtra::kGelu; }));
  EXPECT_TRUE(left_alone(logits, [](GemmShape& s) { s.m = 0; })) << "no row";
  EXPECT_TRUE(left_alone(logits, [](GemmShape& s) { s.k = s.lda = s.ldb = 25; })) << "its factors' rows as well";
  EXPECT_TRUE(left_alone(logits, [](GemmShape& s) { s.result = DType::kF32; })) << "a result in fp32";
  EXPECT_TRUE(left_alone(grad_input, [](GemmShape& s) { s.transpose_b = true, s.ldb = 43; })) << "a weight of such rows";
  EXPECT_TRUE(left_alone(grad_weight, [](GemmShape& s) { s.result = DType::kBF16; })) << "parts of a sum would be rounded";
  EXPECT_TRUE(left_alone(grad_weight, [](GemmShape& s) { s.bias = true; })) << "it would be added with each stretch";
  EXPECT_TRUE(left_alone(grad_weight, [](GemmShape& s) { s.transpose_b = true, s.ldb = 40; })) << "a stretch of columns";
  EXPECT_TRUE(left_alone(Cases()[3].shape, [](GemmShape& s) { s.transpose_a = false, s.lda = 40; })) << "a stretch of columns";
}

TEST_F(CudaPaddedGemmTest, RowsAreCopiedAndWhatLiesBetweenIsNot) {
  for (const auto& [width, rows] : {std::pair<int64_t, int64_t>{3, 5}, {257, 2}, {20000, 1}, {1, 70000}}) {
    const std::vector<uint16_t> from = Bf16s(rows * (width + 2), "from"), to = Bf16s(rows * (width + 5), "to");
    const tensor::MemoryBlock source = Sent(from), target = Sent(to);
    ASSERT_EQ(CopyRows(device_->stream(), reinterpret_cast<const uint16_t*>(source.data()), width + 2,
                       reinterpret_cast<uint16_t*>(target.data()), width + 5, rows, width),
              cudaSuccess);
    std::vector<uint16_t> want = to;
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(from.begin() + row * (width + 2), width, want.begin() + row * (width + 5));
    }
    EXPECT_EQ(Received<uint16_t>(target), want) << rows << " rows of " << width;
  }
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
