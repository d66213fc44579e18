#include "lib/objectstore/retry_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fusionllm::objectstore {
namespace {

TEST(RetryNewsTest, TheFirstFailureIsToldAndThenEachTimeThatItHasLastedTwiceAsLong) {
  RetryNews news;
  const absl::Time begin = absl::FromUnixSeconds(1'000'000);
  std::vector<int> told;
  for (int s = 0; s < 3600; ++s) {
    if (news.Failed(begin + absl::Seconds(s))) told.push_back(s);
  }
  EXPECT_THAT(told, ::testing::ElementsAre(0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048));
  EXPECT_EQ(news.Lasting(), absl::Seconds(3599));
}

TEST(RetryNewsTest, AfterATimeWithoutFailuresTheNextIsTheFirstAgain) {
  RetryNews news;
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  EXPECT_TRUE(news.Failed(now));
  EXPECT_FALSE(news.Failed(now + absl::Milliseconds(500)));
  EXPECT_TRUE(news.Failed(now + 2 * RetryNews::kOver));
  EXPECT_EQ(news.Lasting(), absl::ZeroDuration());
}

}  // namespace
}  // namespace fusionllm::objectstore
