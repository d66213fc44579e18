// Vector functions against libm in double, over their whole range, at lengths that no register divides, on every instruction set that this
// machine has.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "lib/kernels/cpu/vector/bf16.h"
#include "lib/kernels/cpu/vector/rows.h"
#include "lib/kernels/cpu/vector/spans.h"
#include "lib/kernels/cpu/vector/target.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::cpu {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Range(double low, double high, int64_t count) {
  std::vector<float> x(count);
  for (int64_t i = 0; i < count; ++i)
    x[i] = static_cast<float>(low + (high - low) * static_cast<double>(i) / static_cast<double>(count - 1));
  return x;
}

double WorstRelativeError(const std::vector<float>& x, const std::vector<float>& y, double (*exact)(double)) {
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(x[i]);
    if (std::abs(want) > 1e-37) worst = std::max(worst, std::abs(y[i] - want) / std::abs(want));
  }
  return worst;
}

// The code of one instruction set, as run-time dispatch would choose it on a machine that has no better.
class VectorTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    ASSERT_EQ(VectorTarget(), hwy::TargetName(GetParam()));
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

INSTANTIATE_TEST_SUITE_P(InstructionSets, VectorTest, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(VectorTest, ExpIsWithinTwoTenMillionthsOfLibm) {
  const std::vector<float> x = Range(-87, 87, 1'000'003);
  std::vector<float> y(x.size());
  RowExp(x.data(), 0, y.data(), static_cast<int64_t>(x.size()));
  EXPECT_LT(WorstRelativeError(x, y, [](double v) { return std::exp(v); }), 2e-7);
}

TEST_P(VectorTest, ExpGivesZeroFarBelowAndKeepsNaN) {
  const float x[] = {-kInfinity, -1000, -87.4f, kNaN, 0};
  float y[5];
  RowExp(x, 0, y, 5);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 0);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_EQ(y[4], 1);
}

TEST_P(VectorTest, TanhAndSigmoidAreWithinThreeTenMillionthsOfLibm) {
  const std::vector<float> x = Range(-20, 20, 1'000'003);
  std::vector<float> y(x.size());
  Apply(UnaryFunction::kTanh, x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_LT(WorstRelativeError(x, y, [](double v) { return std::tanh(v); }), 3e-7);
  Apply(UnaryFunction::kSigmoid, x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_LT(WorstRelativeError(x, y, [](double v) { return 1 / (1 + std::exp(-v)); }), 3e-7);
}

double ExactGelu(double x) { return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

TEST_P(VectorTest, GeluIsWithinAMillionthOfLibmOfItsScale) {
  const std::vector<float> x = Range(-12, 12, 1'000'003);
  std::vector<float> y(x.size());
  Apply(UnaryFunction::kGeluTanh, x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(y[i], ExactGelu(x[i]), 2.5e-7 * std::max(1.0, std::abs(ExactGelu(x[i])))) << "x = " << x[i];
  }
}

TEST_P(VectorTest, SpansKeepNaNSoThatADivergedLossShows) {
  for (const UnaryFunction function : {UnaryFunction::kRelu, UnaryFunction::kTanh, UnaryFunction::kSigmoid, UnaryFunction::kGeluTanh}) {
    std::vector<float> x(37, 0.5f);
    x[20] = x[36] = kNaN;
    Apply(function, x.data(), x.data(), 37);
    EXPECT_TRUE(std::isnan(x[20]) && std::isnan(x[36])) << static_cast<int>(function);
    EXPECT_FALSE(std::isnan(x[19]) || std::isnan(x[35])) << static_cast<int>(function);
  }
}

TEST_P(VectorTest, RowReductionsSeeEveryElementAndNothingBeyond) {
  for (int64_t n = 1; n < 100; ++n) {
    std::vector<float> x(n + 1, 2.f);
    x[n] = 1000;  // beyond the row
    for (int64_t place = 0; place < n; ++place) {
      x[place] = 3;
      EXPECT_EQ(RowMax(x.data(), n), 3) << n << " " << place;
      EXPECT_EQ(RowDot(x.data(), x.data(), n), static_cast<float>(4 * n + 5));
      x[place] = 2;
    }
  }
}

TEST_P(VectorTest, NormalizesRowsOfAnyLength) {
  for (int64_t n = 1; n < 70; ++n) {
    const std::vector<float> x = Range(-1, 2, n + 1), weight(n, 2.f), bias(n, 1.f);
    std::vector<float> y(n);
    float mean = 0, rstd = 0;
    LayerNormRow(x.data(), weight.data(), bias.data(), 1e-5f, y.data(), &mean, &rstd, n);
    double exact_mean = 0, variance = 0;
    for (int64_t i = 0; i < n; ++i) exact_mean += x[i] / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) variance += (x[i] - exact_mean) * (x[i] - exact_mean) / static_cast<double>(n);
    EXPECT_NEAR(mean, exact_mean, 1e-6) << n;
    EXPECT_NEAR(rstd * std::sqrt(variance + 1e-5), 1, 1e-5) << n;
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(y[i], 2 * (x[i] - exact_mean) / std::sqrt(variance + 1e-5) + 1, 1e-4) << n << " " << i;
  }
}

// Every bf16, and for each the floats around it up to the next: ties, both their neighbours, NaNs.
TEST_P(VectorTest, Bf16HasTheBitsOfThePlainConversionAtAnyLength) {
  std::vector<uint16_t> all;
  std::vector<float> floats;
  for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
    all.push_back(static_cast<uint16_t>(bits));
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) floats.push_back(std::bit_cast<float>(bits << 16 | lower));
  }
  const auto bits_of = [](float x) { return std::bit_cast<uint32_t>(x); };
  std::vector<float> wide(all.size()), rounded(floats.size());
  std::vector<uint16_t> narrow(floats.size());
  UpcastBf16(all.data(), wide.data(), static_cast<int64_t>(all.size()));
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(bits_of(wide[i]), bits_of(tensor::UpcastBf16(all[i]))) << i;
  RoundToBf16(floats.data(), narrow.data(), static_cast<int64_t>(floats.size()));
  RoundFloatsToBf16(floats.data(), rounded.data(), static_cast<int64_t>(floats.size()));
  for (size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(narrow[i], tensor::RoundToBf16(floats[i])) << bits_of(floats[i]);
    ASSERT_EQ(bits_of(rounded[i]), bits_of(tensor::UpcastBf16(narrow[i]))) << bits_of(floats[i]);
  }
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<uint16_t> out(n + 1, 0x5555), in(n, 0x3f80);
    std::vector<float> out_wide(n + 1, 7.f), ones(n, 1.f);
    RoundToBf16(ones.data(), out.data(), n);
    UpcastBf16(in.data(), out_wide.data(), n);
    EXPECT_EQ(std::count(out.begin(), out.end(), 0x3f80), n);
    EXPECT_EQ(std::count(out_wide.begin(), out_wide.end(), 1.f), n);
    EXPECT_EQ(out[n], 0x5555) << "beyond the end";
    EXPECT_EQ(out_wide[n], 7.f) << "beyond the end";
  }
}

}  // namespace
}  // namespace fusionllm::kernels::cpu
