#include "services/scheduler/throttled_cancellation_check.h"

#include <gtest/gtest.h>

namespace fusionllm::services {
namespace {

TEST(ThrottledCancellationCheckTest, AsksOnceInAPeriodHoweverOftenItIsAsked) {
  ThrottledCancellationCheck::Clock::time_point now;
  int asked = 0;
  bool answer = false;
  ThrottledCancellationCheck check(
      [&] {
        ++asked;
        return answer;
      },
      [&] { return now; });
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(check());
  EXPECT_EQ(asked, 1);
  answer = true;
  EXPECT_FALSE(check()) << "not asked yet";
  now += ThrottledCancellationCheck::kPeriod;
  EXPECT_TRUE(check());
  EXPECT_EQ(asked, 2);
  answer = false;
  now += ThrottledCancellationCheck::kPeriod;
  EXPECT_TRUE(check()) << "what has been called off stays called off";
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace fusionllm::services
