#include "operator/manager/first_sync.h"

#include <gtest/gtest.h>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::op::manager {
namespace {

class FirstSyncTest : public ::testing::Test {
 protected:
  // A cache that is complete at that time.
  WaitForSync CompleteAt(absl::Duration when) {
    return [this, when](absl::Duration timeout) {
      if (clock_.Monotonic() < when) clock_.Advance(std::min(timeout, when - clock_.Monotonic()));
      return clock_.Monotonic() >= when;
    };
  }

  kube::testing::FakeClock clock_;
  const absl::Duration begin_ = clock_.Monotonic();
  std::stop_source stop_;
};

TEST_F(FirstSyncTest, AllAreWaitedFor) {
  EXPECT_TRUE(AwaitFirstSync({CompleteAt(begin_ + absl::Minutes(1)), CompleteAt(begin_), CompleteAt(begin_ + absl::Seconds(119))},
                             stop_.get_token(), clock_));
  EXPECT_EQ(clock_.Monotonic() - begin_, absl::Seconds(119));
}

TEST_F(FirstSyncTest, TwoMinutesAreForAllTogether) {
  const WaitForSync soon = CompleteAt(begin_ + absl::Minutes(1)), never = CompleteAt(absl::InfiniteDuration());
  EXPECT_FALSE(AwaitFirstSync({soon, never, soon}, stop_.get_token(), clock_));
  EXPECT_EQ(clock_.Monotonic() - begin_, absl::Minutes(2));
}

TEST_F(FirstSyncTest, StopEndsFirstSync) {
  const auto asked = [this](absl::Duration timeout) {
    stop_.request_stop();
    clock_.Advance(timeout);
    return false;
  };
  EXPECT_FALSE(AwaitFirstSync({asked}, stop_.get_token(), clock_));
  EXPECT_LT(clock_.Monotonic() - begin_, absl::Seconds(1));
}

}  // namespace
}  // namespace fusionllm::op::manager
