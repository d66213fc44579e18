#include "lib/kube/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube {
namespace {

TEST(Clock, SleepEndsWhenStopIsRequested) {
  // For ever, by a clock that does not move.
  testing::FakeClock clock;
  std::stop_source stop;
  std::atomic<bool> slept = true;
  std::thread sleeper([&] { slept = clock.WaitFor(absl::InfiniteDuration(), stop.get_token()); });
  stop.request_stop();
  sleeper.join();
  EXPECT_FALSE(slept);
}

TEST(Clock, TheMachinesClockWakesFromAnEndlessSleepToo) {
  std::stop_source stop;
  std::atomic<bool> slept = true;
  std::thread sleeper([&] { slept = RealClock().WaitFor(absl::InfiniteDuration(), stop.get_token()); });
  stop.request_stop();
  sleeper.join();
  EXPECT_FALSE(slept);
}

TEST(Clock, SleepEndsWhenItsTimeIsOver) {
  testing::FakeClock clock;
  std::atomic<bool> slept = false;
  std::atomic<bool> done = false;
  std::thread sleeper([&] {
    slept = clock.WaitFor(absl::Seconds(5), {});
    done = true;
  });
  while (!done) clock.Advance(absl::Seconds(1));
  sleeper.join();
  EXPECT_TRUE(slept);
}

TEST(Clock, SettingTheMachinesClockDoesNotMoveTheMonotonicOne) {
  testing::FakeClock clock;
  const absl::Duration before = clock.Monotonic();
  clock.SetNow(clock.Now() + absl::Hours(1000));
  EXPECT_EQ(clock.Monotonic(), before);
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(clock.Monotonic(), before + absl::Seconds(2));
}

}  // namespace
}  // namespace fusionllm::kube
