#include "lib/data/sampler.h"

#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BatchSampler Make(int64_t samples, int64_t batch, uint64_t seed) { return BatchSampler::Create(samples, batch, seed).value(); }

std::vector<int64_t> EpochOrder(const BatchSampler& sampler, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < sampler.samples(); ++i) order.push_back(sampler.SampleAt(epoch * sampler.samples() + i));
  return order;
}

TEST(BatchSamplerTest, VisitsEachSampleOnceAnEpoch) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    const int64_t samples = seed < 40 ? seed + 1 : std::uniform_int_distribution<int64_t>(1, 3000)(engine);
    const BatchSampler sampler = Make(samples, 7, engine());
    const std::vector<int64_t> order = EpochOrder(sampler, std::uniform_int_distribution<int64_t>(0, 1000)(engine));
    const std::set<int64_t> distinct(order.begin(), order.end());
    ASSERT_EQ(distinct.size(), static_cast<size_t>(samples));
    EXPECT_EQ(*distinct.begin(), 0);
    EXPECT_EQ(*distinct.rbegin(), samples - 1);
  }
}

TEST(BatchSamplerTest, DrawsAnotherOrderForEachEpochAndSeed) {
  const BatchSampler one = Make(1000, 1, 1);
  EXPECT_NE(EpochOrder(one, 0), EpochOrder(one, 1));
  EXPECT_NE(EpochOrder(one, 0), EpochOrder(Make(1000, 1, 2), 0));
  EXPECT_EQ(EpochOrder(one, 3), EpochOrder(Make(1000, 64, 1), 3));
}

// A biased shuffle would show each sample near its file position. Chi-squared over 8 x 8 cells has 49 degrees of freedom; 100 is beyond
// its 1 - 10^-5 quantile, and the seed is fixed.
TEST(BatchSamplerTest, SpreadsFilePositionsEvenlyOverTheEpoch) {
  constexpr int64_t kSamples = 6400;
  const std::vector<int64_t> order = EpochOrder(Make(kSamples, 1, 1337), 0);
  int64_t cells[8][8] = {};
  for (int64_t i = 0; i < kSamples; ++i) ++cells[i * 8 / kSamples][order[static_cast<size_t>(i)] * 8 / kSamples];
  double chi_squared = 0;
  for (const auto& row : cells) {
    for (const int64_t count : row) chi_squared += static_cast<double>((count - 100) * (count - 100)) / 100.0;
  }
  EXPECT_LT(chi_squared, 100);
}

// The order is part of what a checkpoint means: a change of the generator would break every resumed run.
TEST(BatchSamplerTest, KeepsItsOrderAcrossReleases) {
  EXPECT_THAT(Make(10, 10, 1337).SampleIndices({}).value(), ElementsAre(9, 6, 1, 2, 3, 7, 0, 5, 4, 8));
}

TEST(BatchSamplerTest, FillsTheLastBatchOfAnEpochFromTheNext) {
  const BatchSampler sampler = Make(5, 3, 1);
  const auto batch = sampler.SampleIndices(sampler.Advance({}));
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(*batch, ElementsAre(sampler.SampleAt(3), sampler.SampleAt(4), sampler.SampleAt(5)));
  EXPECT_DOUBLE_EQ(sampler.Epoch({6}), 1.2);
}

TEST(BatchSamplerTest, ResumesExactlyFromACursor) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    const auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine); };
    const int64_t samples = draw(1, 100), batch = draw(1, 150), stop = draw(0, 20);
    const uint64_t job_seed = engine();
    std::vector<std::vector<int64_t>> straight, resumed;
    DataCursor cursor;
    const BatchSampler sampler = Make(samples, batch, job_seed);
    for (int step = 0; step < 30; ++step, cursor = sampler.Advance(cursor)) straight.push_back(sampler.SampleIndices(cursor).value());
    for (int64_t step = stop; step < 30; ++step) {
      const BatchSampler fresh = Make(samples, batch, job_seed);
      resumed.push_back(fresh.SampleIndices({step * batch}).value());
    }
    EXPECT_EQ(std::vector<std::vector<int64_t>>(straight.begin() + stop, straight.end()), resumed);
  }
}

TEST(BatchSamplerTest, RefusesNumbersOutOfRange) {
  EXPECT_THAT(BatchSampler::Create(0, 1, 1).status().message(), HasSubstr("from 0 samples"));
  EXPECT_THAT(BatchSampler::Create(1, 0, 1).status().message(), HasSubstr("batch size is 0"));
  EXPECT_FALSE(BatchSampler::Create(1, int64_t{1} << 40, 1).ok());
  EXPECT_THAT(Make(5, 1, 1).SampleIndices({-1}).status().message(), HasSubstr("cursor -1"));
}

TEST(BatchSamplerTest, WorksOnMoreSamplesThanMemoryHolds) {
  const int64_t samples = int64_t{1} << 60;
  const BatchSampler sampler = Make(samples, 4, 1);
  const std::vector<int64_t> batch = sampler.SampleIndices({samples - 2}).value();
  for (const int64_t index : batch) EXPECT_LT(index, samples);
}

TEST(SequentialIndicesTest, CoversTheDataInOrderWithAShortLastBatch) {
  EXPECT_THAT(SequentialIndices(5, 3, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(SequentialIndices(5, 3, 1), ElementsAre(3, 4));
  EXPECT_THAT(SequentialIndices(5, 3, 2), IsEmpty());
  EXPECT_THAT(SequentialIndices(6, 3, 2), IsEmpty());
}

}  // namespace
}  // namespace fusionllm::data
