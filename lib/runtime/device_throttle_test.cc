#include "lib/runtime/device_throttle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace fusionllm::runtime {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// What the device takes for one op that the machine needed cpu_ns for, less what this test itself was late by.
double SecondsOf(DeviceThrottle& throttle, int key, int64_t cpu_ns) {
  throttle.BeginPass();
  const double late = throttle.lateness_seconds();  // with what the last pass was late by
  throttle.ChargeOp(key, cpu_ns);
  return throttle.EndPass() - (throttle.lateness_seconds() - late);
}

TEST(DeviceThrottleTest, AnOpTakesItsMeasuredTimeByTheScaleHoweverLongTheMachineNeeded) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.001, -1}, /*follow=*/false);
  for (int i = 0; i < 2 * DeviceThrottle::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(throttle, 0, 100'000), 0.002, 1e-9);
  EXPECT_NEAR(SecondsOf(throttle, 1, 3 * kMillisecond), 0.006, 1e-9) << "nothing was measured: what it used";
  EXPECT_NEAR(SecondsOf(throttle, 7, 3 * kMillisecond), 0.006, 1e-9);
}

TEST(DeviceThrottleTest, ASlowMomentBeforeTrainingDoesNotSlowTheDeviceForTheWholeRun) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.004}, /*follow=*/true);
  for (int i = 1; i < DeviceThrottle::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(throttle, 0, kMillisecond), 0.008, 1e-9) << i;
  EXPECT_NEAR(SecondsOf(throttle, 0, kMillisecond), 0.002, 1e-9);
  EXPECT_NEAR(SecondsOf(throttle, 0, kMillisecond), 0.002, 1e-9);
}

TEST(DeviceThrottleTest, WorkOfOthersThatSlowsTheMachineDownDoesNotSlowTheDevice) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.001}, /*follow=*/true);
  for (int i = 0; i < 4 * DeviceThrottle::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(throttle, 0, 3 * kMillisecond), 0.002, 1e-9) << i;
}

TEST(DeviceThrottleTest, FewerQuickRunsThanItTakesToLearnAreNotWhatAnOpTakes) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.002}, /*follow=*/true);
  for (int i = 1; i < DeviceThrottle::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(throttle, 0, 10'000), 0.004, 1e-9) << i;
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(SecondsOf(throttle, 0, 2 * kMillisecond), 0.004, 1e-9) << i;
}

TEST(DeviceThrottleTest, AnOpTakesWhatItTakesUndisturbedAlsoWhereMostRunsAreDisturbed) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.002}, /*follow=*/true);
  for (int i = 0; i < 5 * DeviceThrottle::kMinRuns; ++i) SecondsOf(throttle, 0, i % 5 == 0 ? kMillisecond : 2 * kMillisecond);
  EXPECT_NEAR(SecondsOf(throttle, 0, 2 * kMillisecond), 0.002, 1e-9);
}

TEST(DeviceThrottleTest, RunsThatAreNotAsMeasuredTeachNothing) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.002}, /*follow=*/true);
  throttle.BeginPass();
  for (int i = 0; i < 2 * DeviceThrottle::kMinRuns; ++i) throttle.ChargeOp(0, 10'000, /*learn=*/false);
  throttle.EndPass();
  EXPECT_NEAR(SecondsOf(throttle, 0, 2 * kMillisecond), 0.004, 1e-9);
}

void WorkFor(int64_t nanoseconds) {
  for (const int64_t begin = MonotonicNanoseconds(); MonotonicNanoseconds() - begin < nanoseconds;) {
  }
}

// Of two passes of 0.4 ms with 0.1 ms of work of this machine between them.
int64_t NanosecondsOfTwoPasses(DeviceThrottle& throttle, bool at_once) {
  const int64_t begin = MonotonicNanoseconds();
  throttle.BeginPass();
  throttle.ChargeOp(0, 1);
  throttle.EndPass();
  WorkFor(100'000);
  throttle.BeginPass(at_once);
  throttle.ChargeOp(0, 1);
  throttle.EndPass();
  return MonotonicNanoseconds() - begin;
}

TEST(DeviceThrottleTest, APassThatHadNothingToWaitForBeginsWhereTheLastOneEnded) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.0002}, /*follow=*/false);
  // The least of many tries: a busy machine makes some of them longer.
  int64_t at_once = std::numeric_limits<int64_t>::max(), after_waiting = at_once;
  for (int i = 0; i < 200; ++i) {
    at_once = std::min(at_once, NanosecondsOfTwoPasses(throttle, true));
    after_waiting = std::min(after_waiting, NanosecondsOfTwoPasses(throttle, false));
  }
  EXPECT_GE(at_once, 800'000) << "the device's own time";
  EXPECT_GE(after_waiting, 900'000);
  EXPECT_LT(at_once, after_waiting - 50'000);
}

TEST(DeviceThrottleTest, ALongGapBetweenPassesIsCountedAndNotMadeUpFor) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  throttle.SetSeconds({0.0002}, /*follow=*/false);
  throttle.BeginPass();
  throttle.EndPass();
  const double lateness_before = throttle.lateness_seconds();
  WorkFor(5 * DeviceThrottle::kPassSlackNs);
  const int64_t begin = MonotonicNanoseconds();
  throttle.BeginPass(/*at_once=*/true);
  EXPECT_GE(throttle.lateness_seconds() - lateness_before, 4e-9 * DeviceThrottle::kPassSlackNs);
  throttle.ChargeOp(0, 1);
  throttle.EndPass();
  EXPECT_GE(MonotonicNanoseconds() - begin, 400'000 - DeviceThrottle::kPassSlackNs);
}

TEST(DeviceThrottleTest, WhatAPassIsLateByIsCountedWhereTheNextOneHadToWait) {
  DeviceThrottle throttle(0.5, /*emulate=*/true);
  const auto lateness_of = [&](bool at_once) {
    throttle.BeginPass();
    WorkFor(DeviceThrottle::kPassSlackNs / 2);
    throttle.EndPass();  // of no work, so late by that
    const double before = throttle.lateness_seconds();
    throttle.BeginPass(at_once);
    return throttle.lateness_seconds() - before;
  };
  EXPECT_GE(lateness_of(/*at_once=*/false), 0.5e-9 * DeviceThrottle::kPassSlackNs);
  double least = 1;
  for (int i = 0; i < 200; ++i) least = std::min(least, lateness_of(/*at_once=*/true));
  EXPECT_EQ(least, 0) << "made up for";
}

TEST(DeviceThrottleTest, WithoutEmulationNothingWaits) {
  DeviceThrottle throttle;
  throttle.SetSeconds({1000}, /*follow=*/true);
  EXPECT_LT(SecondsOf(throttle, 0, kMillisecond), 100);
  EXPECT_EQ(throttle.lateness_seconds(), 0);
}

}  // namespace
}  // namespace fusionllm::runtime
