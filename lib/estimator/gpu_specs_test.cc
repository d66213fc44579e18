#include "lib/estimator/gpu_specs.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::estimator {
namespace {

using opdag::OpClass;

Estimate PriceOn(const GpuSpec& gpu, Arithmetic arithmetic, OpClass op_class, double flops, double bytes) {
  CostModel model;
  model.rates = SpecifiedRates(gpu, arithmetic);
  return EstimateOp(model, op_class, "not measured", flops, bytes);
}

TEST(GpuSpecsTest, EveryRowIsWholeAndNamedOnce) {
  const auto specs = GpuSpecs();
  ASSERT_GE(specs.size(), 12);
  EXPECT_TRUE(std::is_sorted(specs.begin(), specs.end(), [](const GpuSpec& a, const GpuSpec& b) { return a.name < b.name; }));
  for (const GpuSpec& gpu : specs) {
    SCOPED_TRACE(std::string(gpu.name));
    EXPECT_EQ(FindGpu(gpu.name), &gpu) << "a name stands twice";
    // A slip of a power of ten would leave these bounds.
    EXPECT_GE(gpu.memory_bytes, 8'000'000'000);
    EXPECT_LE(gpu.memory_bytes, 400'000'000'000);
    EXPECT_GE(gpu.memory_bytes_per_s, 2e11);
    EXPECT_LE(gpu.memory_bytes_per_s, 1e13);
    EXPECT_GE(gpu.fp32_flops, 5e12);
    EXPECT_LE(gpu.fp32_flops, 2e14);
    if (gpu.tf32_flops > 0) {
      EXPECT_GE(gpu.tf32_flops, gpu.fp32_flops);
      EXPECT_NEAR(gpu.bf16_flops / gpu.tf32_flops, 2, 0.03) << "twice tf32 on every GPU that has both";
    }
    EXPECT_THAT(std::string(gpu.source), ::testing::ContainsRegex("20[12][0-9]")) << "a source has a year";
  }
  EXPECT_EQ(FindGpu("nvidia-h100"), nullptr);
}

TEST(GpuSpecsTest, AnOpTakesAsLongAsTheSlowerOfArithmeticAndMemory) {
  const GpuSpec& a100 = *FindGpu("nvidia-a100-80gb-sxm");
  // A product of two 8192 x 8192 matrices: arithmetic decides. 2 * 8192^3 / (0.7 * 19.5e12) = 80.55 ms.
  const double n = 8192;
  EXPECT_NEAR(PriceOn(a100, Arithmetic::kFp32, OpClass::kMatmul, 2 * n * n * n, 3 * 4 * n * n).seconds, 0.08055 + 1e-5, 1e-5);
  EXPECT_NEAR(PriceOn(a100, Arithmetic::kTf32, OpClass::kMatmul, 2 * n * n * n, 3 * 4 * n * n).seconds, 0.010069 + 1e-5, 1e-5);
  // Adding them: memory decides, whatever the tensor cores can do. 3 * 4 * 8192^2 / (0.75 * 2039e9) = 0.527 ms.
  for (const Arithmetic arithmetic : {Arithmetic::kFp32, Arithmetic::kBf16}) {
    const Estimate sum = PriceOn(a100, arithmetic, OpClass::kElementwise, n * n, 3 * 4 * n * n);
    EXPECT_NEAR(sum.seconds, 5.27e-4 + 1e-5, 1e-6);
    EXPECT_FALSE(sum.measured);
    EXPECT_EQ(sum.relative_error, kSpecifiedError);
  }
  EXPECT_EQ(PriceOn(a100, Arithmetic::kFp32, OpClass::kFree, 0, 1e9).seconds, 0);
}

TEST(GpuSpecsTest, ArithmeticThatAGpuLacksIsThatOfFp32) {
  const GpuSpec& t4 = *FindGpu("nvidia-t4");
  EXPECT_EQ(PeakFlops(t4, Arithmetic::kBf16), t4.fp32_flops);
  EXPECT_EQ(PeakFlops(t4, Arithmetic::kTf32), t4.fp32_flops);
  EXPECT_EQ(PeakFlops(*FindGpu("nvidia-l4"), Arithmetic::kBf16), 121e12);
}

TEST(GpuSpecsTest, SpecifiedClassesAreNoGapsToFill) {
  CostModel model;
  model.rates = SpecifiedRates(*FindGpu("nvidia-l4"), Arithmetic::kFp32);
  const auto before = model.rates;
  EXPECT_EQ(FillMissingRates(model), 0);
  EXPECT_EQ(model.rates, before);
}

TEST(GpuSpecsTest, ArithmeticsHaveNames) {
  for (const Arithmetic arithmetic : {Arithmetic::kFp32, Arithmetic::kTf32, Arithmetic::kBf16}) {
    EXPECT_EQ(ArithmeticNamed(Name(arithmetic)), arithmetic);
  }
  EXPECT_EQ(ArithmeticNamed("fp8"), std::nullopt);
}

}  // namespace
}  // namespace fusionllm::estimator
