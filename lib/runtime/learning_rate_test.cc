#include "lib/runtime/learning_rate.h"

#include "gtest/gtest.h"

namespace fusionllm::runtime {
namespace {

TEST(LearningRateTest, WarmsUpThenFallsAlongACosineToTheMinimum) {
  const LearningRateSchedule schedule{.kind = LearningRateSchedule::Kind::kCosine, .warmup_steps = 10, .total_steps = 110, .minimum = 0.1};
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 1, 1), 0.1);
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 1, 10), 1);
  EXPECT_NEAR(LearningRateAt(schedule, 1, 60), 0.55, 1e-12);
  EXPECT_NEAR(LearningRateAt(schedule, 1, 110), 0.1, 1e-12);
  EXPECT_NEAR(LearningRateAt(schedule, 1, 500), 0.1, 1e-12);
}

TEST(LearningRateTest, ConstantAndLinearSchedules) {
  EXPECT_DOUBLE_EQ(LearningRateAt({}, 0.3, 77), 0.3);
  const LearningRateSchedule linear{.kind = LearningRateSchedule::Kind::kLinear, .total_steps = 100};
  EXPECT_NEAR(LearningRateAt(linear, 1, 25), 0.75, 1e-12);
}

TEST(ClipScaleTest, ScalesOnlyLongGradients) {
  EXPECT_EQ(ClipScale(0.5, 1), 1.0f);
  EXPECT_NEAR(ClipScale(4, 1), 0.25f, 1e-6);
  EXPECT_EQ(ClipScale(4, 0), 1.0f);
}

}  // namespace
}  // namespace fusionllm::runtime
