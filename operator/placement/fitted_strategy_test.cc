#include "operator/placement/fitted_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::op {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

job::Strategy Pinned() {
  job::Strategy strategy;
  strategy.stages = 3;
  strategy.pins = {
      {.ops = "loss", .device = "porto-0"}, {.ops = "block.0.*", .device = "turku-0"}, {.ops = "block.1.*", .device = "porto-0"}};
  return strategy;
}

TEST(FittedStrategyTest, WhatAllHaveStays) {
  job::Strategy strategy = Pinned();
  EXPECT_THAT(KeepWhatFits(strategy, {{"porto", 0}, {"turku", 0}, {"turku", 1}}), IsEmpty());
  EXPECT_EQ(strategy, Pinned());
}

TEST(FittedStrategyTest, PinsToAbsentDevicesGoAndAreNamedOnce) {
  job::Strategy strategy = Pinned();
  EXPECT_THAT(KeepWhatFits(strategy, {{"turku", 0}, {"turku", 1}, {"turku", 2}}), ElementsAre("porto-0"));
  ASSERT_EQ(strategy.pins.size(), 1);
  EXPECT_EQ(strategy.pins[0].device, "turku-0");
}

TEST(FittedStrategyTest, ThereAreNoMoreStagesThanExecutorsThatTrain) {
  job::Strategy strategy = Pinned();
  (void)KeepWhatFits(strategy, {{"turku", 0}, {"turku", 1}, {"turku", 2, /*spare=*/true}});
  EXPECT_EQ(strategy.stages, 2);
  strategy.stages = 0;  // the planner decides
  (void)KeepWhatFits(strategy, {{"turku", 0}});
  EXPECT_EQ(strategy.stages, 0);
}

}  // namespace
}  // namespace fusionllm::op
