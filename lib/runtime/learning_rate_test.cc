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

TEST(LearningRateTest, AWarmUpOfAllStepsOrMoreRisesToTheEnd) {
  for (const auto kind :
       {LearningRateSchedule::Kind::kCosine, LearningRateSchedule::Kind::kLinear, LearningRateSchedule::Kind::kConstant}) {
    const LearningRateSchedule whole{.kind = kind, .warmup_steps = 8, .total_steps = 8, .minimum = 0.1};
    for (int64_t step = 1; step <= 8; ++step) EXPECT_DOUBLE_EQ(LearningRateAt(whole, 1, step), step / 8.0) << step;
    const LearningRateSchedule longer{.kind = kind, .warmup_steps = 16, .total_steps = 8, .minimum = 0.1};
    for (int64_t step = 1; step <= 8; ++step) EXPECT_DOUBLE_EQ(LearningRateAt(longer, 1, step), step / 16.0) << step;
  }
}

TEST(LearningRateTest, ARunOfOneStepHasARateWithAndWithoutWarmUp) {
  for (const auto kind : {LearningRateSchedule::Kind::kCosine, LearningRateSchedule::Kind::kLinear}) {
    EXPECT_DOUBLE_EQ(LearningRateAt({.kind = kind, .warmup_steps = 1, .total_steps = 1, .minimum = 0.1}, 1, 1), 1);
    EXPECT_NEAR(LearningRateAt({.kind = kind, .warmup_steps = 0, .total_steps = 1, .minimum = 0.1}, 1, 1), 0.1, 1e-12) << "its last";
  }
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
