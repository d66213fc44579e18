#include "services/executor/shared_calibration.h"

#include <gtest/gtest.h>

#include <string>

#include "lib/base/testing/temp_folder.h"

namespace fusionllm::services {
namespace {

wire::DeviceProfile Profile(int threads) {
  wire::DeviceProfile profile{
      .name = "a-0", .site = "a", .backend = "cpu", .threads = threads, .memory_bytes = 1, .update_seconds_per_element = 1e-9 * threads};
  profile.ops["add{}(f32[1])"] = {.seconds = 1e-6, .op_class = "elementwise", .flops = 1, .bytes = 4};
  return profile;
}

TEST(SharedCalibrationTest, WhatOneMeasuredIsFoundByOthersOfTheSameBackEndAndThreads) {
  const base::TempFolder directory;
  const SharedCalibration mine(directory.path(), "life-1"), theirs(directory.path(), "life-1");
  EXPECT_FALSE(theirs.Find("cpu", 1).has_value());
  ASSERT_TRUE(mine.Keep(Profile(1)).ok());
  ASSERT_TRUE(mine.Keep(Profile(2)).ok());
  ASSERT_TRUE(theirs.Find("cpu", 1).has_value());
  EXPECT_EQ(theirs.Find("cpu", 1)->ops, Profile(1).ops);
  EXPECT_EQ(theirs.Find("cpu", 2)->update_seconds_per_element, 2e-9);
  EXPECT_FALSE(theirs.Find("cpu", 3).has_value());
  EXPECT_FALSE(theirs.Find("ref", 1).has_value());
}

TEST(SharedCalibrationTest, WhatWasMeasuredInAnotherLifeOfTheBrokerIsMeasuredAgain) {
  const base::TempFolder directory;
  ASSERT_TRUE(SharedCalibration(directory.path(), "life-1").Keep(Profile(1)).ok());
  EXPECT_FALSE(SharedCalibration(directory.path(), "life-2").Find("cpu", 1).has_value());
  EXPECT_FALSE(SharedCalibration(directory.path(), "life").Find("cpu", 1).has_value()) << "a prefix of it";
}

TEST(SharedCalibrationTest, ADamagedFileIsMeasuredAgain) {
  const base::TempFolder directory;
  const SharedCalibration shared(directory.path(), "life-1");
  ASSERT_TRUE(shared.Keep(Profile(1)).ok());
  directory.Write("calibration-cpu-1", "life-1\n{\"ops\": ");
  EXPECT_FALSE(shared.Find("cpu", 1).has_value());
}

TEST(SharedCalibrationTest, WithoutACommonFolderNothingIsShared) {
  const SharedCalibration alone("", "life-1");
  EXPECT_TRUE(alone.Keep(Profile(1)).ok());
  EXPECT_FALSE(alone.Find("cpu", 1).has_value());
}

}  // namespace
}  // namespace fusionllm::services
