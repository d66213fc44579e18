#include "lib/runtime/device_pacer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  for (int i = 0; i < 3 * DevicePacer::kLately; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, 100'000), 0.002, 1e-9);
  EXPECT_NEAR(SecondsOf(pacer, 1, 3 * kMillisecond), 0.006, 1e-9) << "nothing was measured: what it used";
  EXPECT_NEAR(SecondsOf(pacer, 7, 3 * kMillisecond), 0.006, 1e-9);
}

TEST(DevicePacerTest, ASlowMomentBeforeTrainingDoesNotSlowTheDeviceForTheWholeRun) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.004}, /*follow=*/true);
  for (int i = 1; i < DevicePacer::kLately; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, kMillisecond), 0.008, 1e-9) << i;
  EXPECT_NEAR(SecondsOf(pacer, 0, kMillisecond), 0.002, 1e-9);
  EXPECT_NEAR(SecondsOf(pacer, 0, kMillisecond), 0.002, 1e-9);
}

TEST(DevicePacerTest, WorkOfOthersThatSlowsTheMachineDownDoesNotSlowTheDevice) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.001}, /*follow=*/true);
  for (int i = 0; i < 2 * DevicePacer::kLately; ++i) EXPECT_NEAR(SecondsOf(pacer, 0, 3 * kMillisecond), 0.002, 1e-9) << i;
}

TEST(DevicePacerTest, AFewQuickRunsAreNotWhatAnOpTakes) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.002}, /*follow=*/true);
  for (int i = 0; i < 2 * DevicePacer::kLately; ++i) {
    EXPECT_NEAR(SecondsOf(pacer, 0, i % 10 == 0 ? 10'000 : 2 * kMillisecond), 0.004, 1e-9) << i;
  }
}

TEST(DevicePacerTest, AnOpTakesWhatItTakesUndisturbedAlsoWhereMostRunsAreDisturbed) {
  DevicePacer pacer(0.5, /*emulate=*/true);
  pacer.SetSeconds({0.002}, /*follow=*/true);
  for (int i = 0; i < DevicePacer::kLately; ++i) SecondsOf(pacer, 0, i % 5 == 0 ? kMillisecond : 2 * kMillisecond);
  EXPECT_NEAR(SecondsOf(pacer, 0, 2 * kMillisecond), 0.002, 1e-9);
}

TEST(DevicePacerTest, WithoutEmulationNothingWaits) {
  DevicePacer pacer;
  pacer.SetSeconds({1000}, /*follow=*/true);
  EXPECT_LT(SecondsOf(pacer, 0, kMillisecond), 100);
  EXPECT_EQ(pacer.overrun_seconds(), 0);
}

}  // namespace
}  // namespace fusionllm::runtime
