#include "lib/estimator/rate_fit.h"

#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/estimator/testing/true_rates.h"

namespace fusionllm::estimator {
namespace {

using opdag::OpClass;
using ::testing::HasSubstr;
using testing::TrueRates;

std::vector<Sample> Measure(const TrueRates& truth, int count, double noise, double outliers, uint32_t seed) {
  std::mt19937 random(seed);
  const auto real = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  std::vector<Sample> samples;
  for (int i = 0; i < count; ++i) {
    Sample s{.op_class = OpClass::kMatmul, .flops = std::pow(10, real(5, 10)), .bytes = std::pow(10, real(4, 8))};
    s.seconds = truth.overhead_s + s.flops * truth.per_flop + s.bytes * truth.per_byte;
    s.seconds *= 1 + real(-noise, noise);
    if (real(0, 1) < outliers) s.seconds *= real(3, 30);
    samples.push_back(s);
  }
  return samples;
}

TEST(RateFitTest, FindsTheTruthBehindCleanSamples) {
  const TrueRates truth{2e-5, 1e-11, 1e-10};
  const auto rate = FitRate(Measure(truth, 40, 0, 0, 1));
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_NEAR(rate->overhead_s / truth.overhead_s, 1, 1e-6);
  EXPECT_NEAR(rate->seconds_per_flop / truth.per_flop, 1, 1e-6);
  EXPECT_NEAR(rate->seconds_per_byte / truth.per_byte, 1, 1e-6);
  EXPECT_LT(rate->relative_error, 1e-6);
}

TEST(RateFitTest, NoiseAndWildSamplesMoveItLittle) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const TrueRates truth{2e-5, 1e-11, 1e-10};
    const auto rate = FitRate(Measure(truth, 120, 0.03, 0.2, seed));
    ASSERT_TRUE(rate.ok()) << rate.status();
    for (const Sample& clean : Measure(truth, 30, 0, 0, seed + 1000)) {
      const double fitted = rate->overhead_s + clean.flops * rate->seconds_per_flop + clean.bytes * rate->seconds_per_byte;
      EXPECT_NEAR(fitted / clean.seconds, 1, 0.05);
    }
  }
}

TEST(RateFitTest, RatesAreNeverNegative) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    const auto rate = FitRate(Measure({0, seed % 2 ? 1e-11 : 0, 1e-10}, 8, 0.3, 0.1, seed));
    ASSERT_TRUE(rate.ok()) << rate.status();
    EXPECT_GE(rate->overhead_s, 0) << "seed " << seed;
    EXPECT_GE(rate->seconds_per_flop, 0) << "seed " << seed;
    EXPECT_GE(rate->seconds_per_byte, 0) << "seed " << seed;
  }
}

TEST(RateFitTest, OneSampleIsReproduced) {
  const auto rate = FitRate(std::vector<Sample>{{.op_class = OpClass::kMatmul, .flops = 1e9, .bytes = 1e6, .seconds = 0.01}});
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_NEAR(rate->overhead_s + 1e9 * rate->seconds_per_flop + 1e6 * rate->seconds_per_byte, 0.01, 1e-9);
}

TEST(RateFitTest, RefusesWhatIsNoMeasurement) {
  EXPECT_FALSE(FitRate({}).ok());
  for (double seconds : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto rate = FitRate(std::vector<Sample>{{.signature = "gelu", .flops = 1, .seconds = seconds}});
    EXPECT_THAT(std::string(rate.status().message()), HasSubstr("sample 0 (gelu)")) << seconds;
  }
}

// What the error is for: it must tell a class whose ops are alike from one whose ops are not, on ops that the fit has not seen.
TEST(RateFitTest, TheErrorIsThatOfOpsNotSeen) {
  std::vector<Sample> mixed;
  for (const Sample& sample : Measure({0, 1e-11, 0}, 12, 0, 0, 3)) {
    mixed.push_back(sample);
    if (mixed.size() % 2 == 0) mixed.back().seconds *= 2;  // backward ops at half the rate
  }
  const auto rate = FitRate(mixed);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(rate->relative_error, 0.2);
  EXPECT_LT(rate->relative_error, 1.2);
  // Three unlike samples are met exactly by three rates, and say nothing about a fourth.
  const std::vector<Sample> three = {
      {"a", OpClass::kMatmul, 1e9, 1e6, 1e-2}, {"b", OpClass::kMatmul, 1e6, 1e7, 5e-3}, {"c", OpClass::kMatmul, 1e3, 1e3, 1e-4}};
  EXPECT_GT(FitRate(three)->relative_error, 0.3);
  EXPECT_EQ(FitRate(std::span(three).first(1))->relative_error, kUnknownError);
}

TEST(RateFitTest, EveryClassHasItsOwnRates) {
  std::vector<Sample> samples = Measure({2e-5, 1e-11, 1e-10}, 40, 0, 0, 1);
  samples.push_back({"copy", OpClass::kDataMovement, 0, 1e6, 1e-3});
  samples.push_back({"reshape", OpClass::kFree, 0, 1e6, 1e-3});
  const auto rates = FitRates(samples);
  ASSERT_TRUE(rates.ok()) << rates.status();
  EXPECT_EQ((*rates)[static_cast<size_t>(OpClass::kMatmul)].samples, 40);
  EXPECT_NEAR((*rates)[static_cast<size_t>(OpClass::kDataMovement)].seconds_per_byte, 1e-9, 1e-12);
  EXPECT_EQ((*rates)[static_cast<size_t>(OpClass::kFree)].samples, 0);
  EXPECT_EQ((*rates)[static_cast<size_t>(OpClass::kGather)].samples, 0);
}

TEST(RateFitTest, LatencyAndBandwidthOfALinkComeFromTransfers) {
  std::vector<TransferSample> samples;
  for (double bytes : {64.0, 1e4, 1e5, 1e6, 4e6}) {
    for (double jitter : {0.99, 1.0, 1.01}) samples.push_back({bytes, (0.04 + bytes / 2.5e6) * jitter});
  }
  samples.push_back({1e6, 5});  // something else had the link
  const auto fit = FitLink(samples);
  ASSERT_TRUE(fit.ok()) << fit.status();
  EXPECT_NEAR(fit->latency_s, 0.04, 0.001);
  EXPECT_NEAR(fit->bytes_per_s, 2.5e6, 0.05e6);
  EXPECT_FALSE(FitLink(std::vector<TransferSample>{{100, 1}, {100, 2}}).ok());
  EXPECT_FALSE(FitLink(std::vector<TransferSample>{{100, 2}, {1000, 1}}).ok());
}

}  // namespace
}  // namespace fusionllm::estimator
