#include "lib/base/philox.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

using ::testing::ElementsAre;

// Known answers of the authors' Random123 distribution (kat_vectors, philox4x32 10).
TEST(PhiloxTest, GivesThePublishedKnownAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
}

TEST(StableHashTest, GivesThePublishedFnv1aValues) {
  EXPECT_EQ(StableHash(""), 0xcbf29ce484222325u);
  EXPECT_EQ(StableHash("a"), 0xaf63dc4c8601ec8cu);
}

TEST(CounterRngTest, DependsOnSeedNameAndIndex) {
  const CounterRng rng(1, "a");
  EXPECT_EQ(rng.Uint32(7), CounterRng(1, "a").Uint32(7));
  EXPECT_NE(rng.Uint32(7), CounterRng(2, "a").Uint32(7));
  EXPECT_NE(rng.Uint32(7), CounterRng(1, "b").Uint32(7));
  EXPECT_NE(rng.Uint32(7), rng.Uint32(8));
}

TEST(CounterRngTest, NormalHasUnitVarianceAndZeroMean) {
  const CounterRng rng(3, "w");
  double sum = 0, squares = 0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = rng.Normal(i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(CounterRngTest, UniformAndBelowStayInTheirRange) {
  const CounterRng rng(4, "u");
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_GE(rng.Uniform(i), 0.0f);
    EXPECT_LT(rng.Uniform(i), 1.0f);
    EXPECT_LT(rng.Below(i, 7), 7u);
  }
}

}  // namespace
}  // namespace fusionllm::base
