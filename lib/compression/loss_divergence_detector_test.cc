#include "lib/compression/loss_divergence_detector.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/codec.h"

namespace fusionllm::compression {
namespace {

using ::testing::HasSubstr;

TEST(CompareTensorsTest, GivesErrorAngleAndResidual) {
  const std::vector<float> original = {3, 4}, decoded = {0, 4};
  const auto error = CompareTensors(original, decoded);
  ASSERT_TRUE(error.ok());
  EXPECT_DOUBLE_EQ(error->original_norm, 5);
  EXPECT_DOUBLE_EQ(error->residual_norm, 3);
  EXPECT_DOUBLE_EQ(error->relative_error, 0.6);
  EXPECT_DOUBLE_EQ(error->cosine, 0.8);
  EXPECT_DOUBLE_EQ(error->max_error, 3);
}

TEST(CompareTensorsTest, KnowsZerosAndRefusesOtherSizes) {
  const std::vector<float> zero = {0, 0}, one = {1, 0};
  EXPECT_EQ(CompareTensors(zero, zero)->relative_error, 0);
  EXPECT_EQ(CompareTensors(zero, zero)->cosine, 1);
  EXPECT_EQ(CompareTensors(zero, one)->cosine, 0);
  EXPECT_TRUE(std::isinf(CompareTensors(zero, one)->relative_error));
  EXPECT_FALSE(CompareTensors(zero, std::vector<float>{1}).ok());
  EXPECT_TRUE(std::isnan(CompareTensors(one, std::vector<float>{std::nanf(""), 0})->max_error));
}

TEST(CompareTensorsTest, OrdersTheCodecsByWhatTheyLose) {
  std::mt19937_64 rng(4);
  std::normal_distribution<float> normal;
  std::vector<float> values(100000);
  for (float& x : values) x = normal(rng);
  double last = -1;
  for (const char* text : {"fp32", "fp16", "bf16", "int8", "int4", "topk@3:int8", "topk@100:int8"}) {
    std::vector<std::byte> message;
    std::vector<float> decoded(values.size());
    ASSERT_TRUE(Encode(*ParseCodecSpec(text), Direction::kForward, values, nullptr, nullptr, &message, nullptr).ok());
    ASSERT_TRUE(Decode(Direction::kForward, message, nullptr, decoded, nullptr).ok());
    const double relative = CompareTensors(values, decoded)->relative_error;
    EXPECT_GT(relative, last) << text;
    last = relative;
  }
  EXPECT_LT(last, 1);
}

TEST(ComparisonSamplerTest, TakesTheFirstAndEveryPeriodth) {
  ComparisonSampler every_third(3), never(0);
  std::vector<bool> taken;
  for (int i = 0; i < 7; ++i) taken.push_back(every_third.Next());
  EXPECT_THAT(taken, ::testing::ElementsAre(true, false, false, true, false, false, true));
  EXPECT_FALSE(never.Next());
}

// An ordinary curve: falls from 5.5 towards 2 with noise.
double Ordinary(int step, std::mt19937_64& rng) {
  return 2 + 3.5 * std::exp(-step / 80.0) + std::normal_distribution<double>(0, 0.05)(rng);
}

TEST(LossDivergenceDetectorTest, LeavesAFallingAndAFlatLossAlone) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 rng(seed);
    LossDivergenceDetector watcher;
    for (int step = 1; step <= 1500; ++step) {
      const auto backoff = watcher.Observe(step, Ordinary(step, rng));
      ASSERT_FALSE(backoff.has_value()) << "seed " << seed << ": " << backoff->message;
    }
  }
}

TEST(LossDivergenceDetectorTest, AsksForABackOffSoonAfterTheLossTurnsUp) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 rng(seed);
    LossDivergenceDetector watcher;
    int asked = 0;
    for (int step = 1; step <= 330 && asked == 0; ++step) {
      const double rise = step > 300 ? 0.03 * (step - 300) : 0;
      const auto backoff = watcher.Observe(step, Ordinary(step, rng) + rise);
      if (!backoff.has_value()) continue;
      asked = step;
      EXPECT_EQ(backoff->reason, "CompressionBackoff");
      EXPECT_THAT(backoff->message, HasSubstr("step " + std::to_string(step) + ":"));
    }
    EXPECT_GT(asked, 300) << "seed " << seed;
  }
}

TEST(LossDivergenceDetectorTest, SeesASlowCreepThatNoSingleWindowShows) {
  std::mt19937_64 rng(9);
  LossDivergenceDetector watcher;
  bool asked = false;
  for (int step = 1; step <= 2000 && !asked; ++step) {
    const double noise = std::normal_distribution<double>(0, 0.01)(rng);
    asked = watcher.Observe(step, (step < 300 ? 2.0 : 2.0 + 0.0002 * (step - 300)) + noise).has_value();
  }
  EXPECT_TRUE(asked);
}

TEST(LossDivergenceDetectorTest, BacksOffAtOnceOnNaNOrInfiniteLoss) {
  LossDivergenceDetector watcher;
  const auto backoff = watcher.Observe(7, std::nan(""));
  ASSERT_TRUE(backoff.has_value());
  EXPECT_THAT(backoff->message, HasSubstr("step 7: the loss is nan"));
}

TEST(LossDivergenceDetectorTest, StartsAfreshAfterABackOff) {
  LossDivergenceDetector watcher;
  for (int step = 1; step <= 50; ++step) watcher.Observe(step, 1.0);
  int asked = 0;
  for (int step = 51; step <= 200; ++step) asked += watcher.Observe(step, 2.0).has_value();
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace fusionllm::compression
