#include "lib/data/sampler.h"

#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Sampler Make(int64_t samples, uint64_t seed) { return Sampler::Create(samples, seed).value(); }

std::vector<int64_t> EpochOrder(const Sampler& sampler, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < sampler.samples(); ++i) order.push_back(sampler.SampleAt(epoch * sampler.samples() + i));
  return order;
}

TEST(SamplerTest, VisitsEachSampleOnceAnEpoch) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    const int64_t samples = seed < 40 ? seed + 1 : std::uniform_int_distribution<int64_t>(1, 3000)(engine);
    const Sampler sampler = Make(samples, engine());
    const std::vector<int64_t> order = EpochOrder(sampler, std::uniform_int_distribution<int64_t>(0, 1000)(engine));
    const std::set<int64_t> distinct(order.begin(), order.end());
    ASSERT_EQ(distinct.size(), static_cast<size_t>(samples));
    EXPECT_EQ(*distinct.begin(), 0);
    EXPECT_EQ(*distinct.rbegin(), samples - 1);
  }
}

TEST(SamplerTest, DrawsAnotherOrderForEachEpochAndSeed) {
  const Sampler one = Make(1000, 1);
  EXPECT_NE(EpochOrder(one, 0), EpochOrder(one, 1));
  EXPECT_NE(EpochOrder(one, 0), EpochOrder(Make(1000, 2), 0));
  EXPECT_EQ(EpochOrder(one, 3), EpochOrder(Make(1000, 1), 3));
}

// A biased shuffle would show each sample near its file position. Chi-squared over 8 x 8 cells has 49 degrees of freedom; 100 is beyond
// its 1 - 10^-5 quantile, and the seed is fixed.
TEST(SamplerTest, SpreadsFilePositionsEvenlyOverTheEpoch) {
  constexpr int64_t kSamples = 6400;
  const std::vector<int64_t> order = EpochOrder(Make(kSamples, 1337), 0);
  int64_t cells[8][8] = {};
  for (int64_t i = 0; i < kSamples; ++i) ++cells[i * 8 / kSamples][order[static_cast<size_t>(i)] * 8 / kSamples];
  double chi_squared = 0;
  for (const auto& row : cells) {
    for (const int64_t count : row) chi_squared += static_cast<double>((count - 100) * (count - 100)) / 100.0;
  }
  EXPECT_LT(chi_squared, 100);
}

// The order is part of what a checkpoint means: a change of the generator would break every resumed run.
TEST(SamplerTest, KeepsItsOrderAcrossReleases) { EXPECT_THAT(EpochOrder(Make(10, 1337), 0), ElementsAre(9, 6, 1, 2, 3, 7, 0, 5, 4, 8)); }

TEST(SamplerTest, RefusesNumbersOutOfRange) {
  EXPECT_THAT(Sampler::Create(0, 1).status().message(), HasSubstr("from 0 samples"));
  EXPECT_FALSE(Sampler::Create((int64_t{1} << 61) + 1, 1).ok());
}

TEST(SamplerTest, WorksOnMoreSamplesThanMemoryHolds) {
  const int64_t samples = int64_t{1} << 60;
  const Sampler sampler = Make(samples, 1);
  for (int64_t position = samples - 2; position < samples + 2; ++position) {
    EXPECT_GE(sampler.SampleAt(position), 0);
    EXPECT_LT(sampler.SampleAt(position), samples);
  }
}

}  // namespace
}  // namespace fusionllm::data
