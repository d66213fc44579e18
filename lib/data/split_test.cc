#include "lib/data/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace fusionllm::data {
namespace {

std::vector<int64_t> SamplesHeldOut(const EvenSplit& split, int64_t count) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < count; ++i) samples.push_back(split.HeldOut(i));
  return samples;
}

TEST(EvenSplitTest, EverySampleIsEitherKeptOrHeldOut) {
  for (int64_t samples = 2; samples < 40; ++samples) {
    for (int64_t held_out = 1; held_out < samples; ++held_out) {
      const auto split = EvenSplit::Create(samples, held_out);
      ASSERT_TRUE(split.ok()) << split.status();
      std::vector<int64_t> kept;
      for (int64_t i = 0; i < split->kept(); ++i) kept.push_back(split->Kept(i));
      EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end())) << samples << " " << held_out;
      const std::vector<int64_t> held = SamplesHeldOut(*split, held_out);
      kept.insert(kept.end(), held.begin(), held.end());
      std::sort(kept.begin(), kept.end());
      std::vector<int64_t> all(static_cast<size_t>(samples));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(kept, all) << samples << " " << held_out;
    }
  }
}

TEST(EvenSplitTest, EachPartOfTheDataHasItsShareAlsoAmongTheFirstHeldOut) {
  const auto split = EvenSplit::Create(100'000, 1'000);
  ASSERT_TRUE(split.ok());
  const auto in_tenths = [](const std::vector<int64_t>& samples) {
    std::vector<int> counts(10, 0);
    for (const int64_t sample : samples) ++counts[static_cast<size_t>(sample / 10'000)];
    return counts;
  };
  EXPECT_THAT(in_tenths(SamplesHeldOut(*split, 1'000)), ::testing::Each(100));
  EXPECT_THAT(in_tenths(SamplesHeldOut(*split, 200)), ::testing::Each(::testing::AllOf(::testing::Gt(8), ::testing::Lt(36))));
}

// Every tenth sample of data whose classes take turns would be of one class.
TEST(EvenSplitTest, APeriodOfTheDataIsNotSampledAtOnePhase) {
  const auto split = EvenSplit::Create(10'000, 1'000);
  ASSERT_TRUE(split.ok());
  std::vector<int> classes(10, 0);
  for (const int64_t sample : SamplesHeldOut(*split, 1'000)) ++classes[static_cast<size_t>(sample % 10)];
  EXPECT_THAT(classes, ::testing::Each(::testing::AllOf(::testing::Gt(60), ::testing::Lt(140))));
}

// Checkpoints rest on it: other samples would be trained on that were held out.
TEST(EvenSplitTest, TheDrawStaysWhatItIs) {
  const auto split = EvenSplit::Create(1'000, 5);
  ASSERT_TRUE(split.ok());
  EXPECT_THAT(SamplesHeldOut(*split, 5), ::testing::ElementsAre(957, 337, 590, 620, 3));
}

TEST(EvenSplitTest, NothingAndAllCannotBeHeldOut) {
  EXPECT_FALSE(EvenSplit::Create(10, 0).ok());
  EXPECT_FALSE(EvenSplit::Create(10, 10).ok());
  EXPECT_FALSE(EvenSplit::Create(1, 1).ok());
}

}  // namespace
}  // namespace fusionllm::data
