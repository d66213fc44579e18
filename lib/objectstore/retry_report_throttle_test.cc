#include "lib/objectstore/retry_report_throttle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fusionllm::objectstore {
namespace {

TEST(RetryReportThrottleTest, ReportsFirstFailureThenAtDoublingIntervals) {
  RetryReportThrottle news;
  const absl::Time begin = absl::FromUnixSeconds(1'000'000);
  std::vector<int> reported;
  for (int s = 0; s < 3600; ++s) {
    if (news.ShouldReport(begin + absl::Seconds(s))) reported.push_back(s);
  }
  EXPECT_THAT(reported, ::testing::ElementsAre(0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048));
  EXPECT_EQ(news.Elapsed(), absl::Seconds(3599));
}

TEST(RetryReportThrottleTest, AfterATimeWithoutFailuresTheNextIsTheFirstAgain) {
  RetryReportThrottle news;
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  EXPECT_TRUE(news.ShouldReport(now));
  EXPECT_FALSE(news.ShouldReport(now + absl::Milliseconds(500)));
  EXPECT_TRUE(news.ShouldReport(now + 2 * RetryReportThrottle::kResetAfter));
  EXPECT_EQ(news.Elapsed(), absl::ZeroDuration());
}

}  // namespace
}  // namespace fusionllm::objectstore
