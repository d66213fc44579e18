#include "lib/kube/client/request_limiter.h"

#include <gtest/gtest.h>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

using testing::FakeClock;
using testing::SelfAdvancingClock;

TEST(RequestLimiter, ALongPauseFillsTheBucketOnlyToTheBurst) {
  FakeClock clock;
  RequestLimiter limiter(10, 2, clock);
  clock.Advance(absl::Hours(1));
  EXPECT_EQ(limiter.Wait({}), absl::ZeroDuration());
  EXPECT_EQ(limiter.Wait({}), absl::ZeroDuration());
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(limiter.Wait(stop.get_token()), absl::InfiniteDuration());
}

TEST(RequestLimiter, AnotherRateHoldsAtOnceAndMakesNoGifts) {
  SelfAdvancingClock clock;
  RequestLimiter limiter(0.01, 2, clock);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(limiter.Wait({}), absl::ZeroDuration());
  limiter.SetRate(10, 5);
  EXPECT_EQ(limiter.Wait({}), absl::Milliseconds(100)) << "not the 100 s that it was; and none was left";
  clock.Advance(absl::Hours(1));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limiter.Wait({}), absl::ZeroDuration());
  limiter.SetRate(1, 1);
  EXPECT_EQ(limiter.Wait({}), absl::ZeroDuration()) << "two were left, and one is kept";
  EXPECT_EQ(limiter.Wait({}), absl::Seconds(1));
}

}  // namespace
}  // namespace fusionllm::kube
