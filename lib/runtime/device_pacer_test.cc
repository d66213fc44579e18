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
  pacer.BeginPass();
  const double late = pacer.overrun_seconds();  // with what the last pass was late by
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

TEST(DevicePacerTest, RunsThatAreNotAsMeasuredTeachNothing) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.002}, /*follow=*/true);
  pacer.BeginPass();
  for (int i = 0; i < 2 * DevicePacer::kMinRuns; ++i) pacer.ChargeOp(0, 10'000, /*learn=*/false);
  pacer.EndPass();
  EXPECT_NEAR(SecondsOf(pacer, 0, 2 * kMillisecond), 0.004, 1e-9);
}

void WorkFor(int64_t nanoseconds) {
  for (const int64_t begin = MonotonicNanoseconds(); MonotonicNanoseconds() - begin < nanoseconds;) {
  }
}

// Of two passes of 0.4 ms with 0.1 ms of work of this machine between them.
int64_t NanosecondsOfTwoPasses(DevicePacer& pacer, bool at_once) {
  const int64_t begin = MonotonicNanoseconds();
  pacer.BeginPass();
  pacer.ChargeOp(0, 1);
  pacer.EndPass();
  WorkFor(100'000);
  pacer.BeginPass(at_once);
  pacer.ChargeOp(0, 1);
  pacer.EndPass();
  return MonotonicNanoseconds() - begin;
}

TEST(DevicePacerTest, APassThatHadNothingToWaitForBeginsWhereTheLastOneEnded) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.0002}, /*follow=*/false);
  // The least of many tries: a busy machine makes some of them longer.
  int64_t at_once = std::numeric_limits<int64_t>::max(), after_waiting = at_once;
  for (int i = 0; i < 200; ++i) {
    at_once = std::min(at_once, NanosecondsOfTwoPasses(pacer, true));
    after_waiting = std::min(after_waiting, NanosecondsOfTwoPasses(pacer, false));
  }
  EXPECT_GE(at_once, 800'000) << "the device's own time";
  EXPECT_GE(after_waiting, 900'000);
  EXPECT_LT(at_once, after_waiting - 50'000);
}

TEST(DevicePacerTest, ALongGapBetweenPassesIsCountedAndNotMadeUpFor) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.0002}, /*follow=*/false);
  pacer.BeginPass();
  pacer.EndPass();
  const double overrun_before = pacer.overrun_seconds();
  WorkFor(5 * DevicePacer::kBetweenPassesNs);
  const int64_t begin = MonotonicNanoseconds();
  pacer.BeginPass(/*at_once=*/true);
  EXPECT_GE(pacer.overrun_seconds() - overrun_before, 4e-9 * DevicePacer::kBetweenPassesNs);
  pacer.ChargeOp(0, 1);
  pacer.EndPass();
  EXPECT_GE(MonotonicNanoseconds() - begin, 400'000 - DevicePacer::kBetweenPassesNs);
}

TEST(DevicePacerTest, WhatAPassIsLateByIsCountedWhereTheNextOneHadToWait) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  const auto overrun_of = [&](bool at_once) {
    pacer.BeginPass();
    WorkFor(DevicePacer::kBetweenPassesNs / 2);
    pacer.EndPass();  // of no work, so late by that
    const double before = pacer.overrun_seconds();
    pacer.BeginPass(at_once);
    return pacer.overrun_seconds() - before;
  };
  EXPECT_GE(overrun_of(/*at_once=*/false), 0.5e-9 * DevicePacer::kBetweenPassesNs);
  double least = 1;
  for (int i = 0; i < 200; ++i) least = std::min(least, overrun_of(/*at_once=*/true));
  EXPECT_EQ(least, 0) << "made up for";
}

TEST(DevicePacerTest, WithoutEmulationNothingWaits) {
  DevicePacer pacer;
  pacer.SetSeconds({1000}, /*follow=*/true);
  EXPECT_LT(SecondsOf(pacer, 0, kMillisecond), 100);
  EXPECT_EQ(pacer.overrun_seconds(), 0);
}

}  // namespace
}  // namespace fusionllm::runtime
