#include "lib/runtime/device_pacer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace fusionllm::runtime {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// What the device takes for one op that the machine needed cpu_ns for, less what this test itself was late by.
double SecondsOf(DevicePacer& pacer, int key, int64_t cpu_ns) {
  const double late = pacer.overrun_seconds();
  pacer.BeginPass();
  pacer.ChargeOp(key, cpu_ns);
  return pacer.EndPass() - (pacer.overrun_seconds() - late);
}

TEST(DevicePacerTest, AnOpTakesItsMeasuredTimeByTheScaleHoweverLongTheMachineNeeded) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.001, -1}, /*follow=*/false);
  for (int i = 0; i < 2 * DevicePacer::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, 100'000), 0.002, 1e-9);
  EXPECT_NEAR(SecondsOf(pacer, 1, 3 * kMillisecond), 0.006, 1e-9) << "nothing was measured: what it used";
  EXPECT_NEAR(SecondsOf(pacer, 7, 3 * kMillisecond), 0.006, 1e-9);
}

TEST(DevicePacerTest, ASlowMomentBeforeTrainingDoesNotSlowTheDeviceForTheWholeRun) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.004}, /*follow=*/true);
  for (int i = 1; i < DevicePacer::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, kMillisecond), 0.008, 1e-9) << i;
  EXPECT_NEAR(SecondsOf(pacer, 0, kMillisecond), 0.002, 1e-9);
  EXPECT_NEAR(SecondsOf(pacer, 0, kMillisecond), 0.002, 1e-9);
}

TEST(DevicePacerTest, WorkOfOthersThatSlowsTheMachineDownDoesNotSlowTheDevice) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.001}, /*follow=*/true);
  for (int i = 0; i < 4 * DevicePacer::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, 3 * kMillisecond), 0.002, 1e-9) << i;
}

TEST(DevicePacerTest, FewerQuickRunsThanItTakesToLearnAreNotWhatAnOpTakes) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.002}, /*follow=*/true);
  for (int i = 1; i < DevicePacer::kMinRuns; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, 10'000), 0.004, 1e-9) << i;
  for (int i = 0; i < 8; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, 2 * kMillisecond), 0.004, 1e-9) << i;
}

TEST(DevicePacerTest, AnOpTakesWhatItTakesUndisturbedAlsoWhereMostRunsAreDisturbed) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.002}, /*follow=*/true);
  for (int i = 0; i < 5 * DevicePacer::kMinRuns; ++i) SecondsOf(pacer, 0, i % 5 == 0 ? kMillisecond : 2 * kMillisecond);
  EXPECT_NEAR(SecondsOf(pacer, 0, 2 * kMillisecond), 0.002, 1e-9);
}

// Of two passes of 0.4 ms between which the machine works for 0.1 ms: the least of many tries, of which a busy machine makes some longer.
int64_t NanosecondsOfTwoPasses(bool at_once) {
  constexpr int64_t kBetweenNs = 100'000;
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.0002}, /*follow=*/false);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 300; ++i) {
    const int64_t begin = MonotonicNanoseconds();
    pacer.BeginPass();
    pacer.ChargeOp(0, 1);
    pacer.EndPass();
    for (const int64_t end = MonotonicNanoseconds(); MonotonicNanoseconds() - end < kBetweenNs;) {
    }
    pacer.BeginPass(at_once);
    pacer.ChargeOp(0, 1);
    pacer.EndPass();
    least = std::min(least, MonotonicNanoseconds() - begin);
  }
  return least;
}

TEST(DevicePacerTest, APassThatHadNothingToWaitForBeginsWhereTheLastOneEnded) {
  EXPECT_GE(NanosecondsOfTwoPasses(/*at_once=*/false), 900'000);
  const int64_t at_once = NanosecondsOfTwoPasses(/*at_once=*/true);
  EXPECT_GE(at_once, 800'000) << "the device's own time";
  EXPECT_LT(at_once, 880'000);
}

TEST(DevicePacerTest, WhatIsMoreThanPassesMayLieApartIsNotCaughtUp) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.0002}, /*follow=*/false);
  pacer.BeginPass();
  pacer.EndPass();
  for (const int64_t end = MonotonicNanoseconds(); MonotonicNanoseconds() - end < 3 * DevicePacer::kBetweenPassesNs;) {
  }
  const int64_t begin = MonotonicNanoseconds();
  pacer.BeginPass(/*at_once=*/true);
  pacer.ChargeOp(0, 1);
  pacer.EndPass();
  EXPECT_GE(MonotonicNanoseconds() - begin, 400'000 - DevicePacer::kBetweenPassesNs);
}

TEST(DevicePacerTest, WithoutEmulationNothingWaits) {
  DevicePacer pacer;
  pacer.SetSeconds({1000}, /*follow=*/true);
  EXPECT_LT(SecondsOf(pacer, 0, kMillisecond), 100);
  EXPECT_EQ(pacer.overrun_seconds(), 0);
}

}  // namespace
}  // namespace fusionllm::runtime
