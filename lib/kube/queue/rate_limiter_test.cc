#include "lib/kube/queue/rate_limiter.h"

#include <gtest/gtest.h>

#include <limits>

namespace fusionllm::kube {
namespace {

TEST(BackoffDelayTest, DoublesUpToItsLimitForAnyNumberOfFailures) {
  const RetryLimits limits;
  EXPECT_EQ(BackoffDelay(limits, 0), absl::Milliseconds(5));
  EXPECT_EQ(BackoffDelay(limits, 1), absl::Milliseconds(10));
  EXPECT_EQ(BackoffDelay(limits, 17), absl::Milliseconds(5) * (1 << 17));
  for (const int failures : {18, 31, 63, 64, 1000, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(BackoffDelay(limits, failures), absl::Seconds(1000)) << failures;
  }
}

TEST(TokenBucketTest, GivesABurstAndThenOneAtATime) {
  TokenBucket bucket(10, 3);
  const absl::Duration now = absl::Seconds(50);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.Take(now), absl::ZeroDuration()) << i;
  EXPECT_EQ(bucket.Take(now), absl::Milliseconds(100));
  EXPECT_EQ(bucket.Take(now), absl::Milliseconds(200));
  // Two promised, so a tenth of a second later the third in line waits as long as the second did.
  EXPECT_EQ(bucket.Take(now + absl::Milliseconds(100)), absl::Milliseconds(200));
}

TEST(TokenBucketTest, FillsToItsBurstAndNotFurther) {
  TokenBucket bucket(10, 2);
  for (int i = 0; i < 2; ++i) bucket.Take(absl::Seconds(1));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(bucket.Take(absl::Hours(1000)), absl::ZeroDuration());
  EXPECT_GT(bucket.Take(absl::Hours(1000)), absl::ZeroDuration());
}

TEST(TokenBucketTest, LongQueuesDoNotGrowBeyondTheLongestWait) {
  TokenBucket bucket(1, 1);
  bucket.Take(absl::Seconds(1));
  for (int i = 0; i < 1000; ++i) EXPECT_LE(bucket.Take(absl::Seconds(1), absl::Seconds(5)), absl::Seconds(5));
  EXPECT_LE(bucket.Take(absl::Seconds(6)), absl::Seconds(1));  // 1,000 refusals were not promises
}

}  // namespace
}  // namespace fusionllm::kube
