#include "operator/placement/fitted_strategy.h"

#include <gtest/gtest.h>

namespace fusionllm::op::placement {
namespace {

job::Strategy Pinned() {
  job::Strategy strategy;
  strategy.stages = 3;
  strategy.pins = {
      {.ops = "loss", .device = "porto-0"}, {.ops = "block.0.*", .device = "turku-0"}, {.ops = "block.1.*", .device = "porto-0"}};
  return strategy;
}

TEST(FittedStrategyTest, WhatAllHaveStays) {
  job::Strategy strategy = Pinned();
  EXPECT_EQ(FitStrategy(strategy, {{"porto", 0}, {"turku", 0}, {"turku", 1}}), "");
  EXPECT_EQ(strategy, Pinned());
}

TEST(FittedStrategyTest, PinsToAbsentDevicesGoAndAreNamedOnce) {
  job::Strategy strategy = Pinned();
  EXPECT_EQ(FitStrategy(strategy, {{"turku", 0}, {"turku", 1}, {"turku", 2}}),
            "This attempt lacks devices of spec.strategy: what is pinned to porto-0 goes where it is fastest.");
  ASSERT_EQ(strategy.pins.size(), 1);
  EXPECT_EQ(strategy.pins[0].device, "turku-0");
}

TEST(FittedStrategyTest, ThereAreNoMoreStagesThanExecutorsThatMayTrain) {
  job::Strategy strategy = Pinned();
  strategy.pins.clear();
  strategy.exclude = {"turku-1", "oslo-9"};
  EXPECT_EQ(FitStrategy(strategy, {{"turku", 0}, {"turku", 1}, {"turku", 2}, {"turku", 3, /*spare=*/true}}),
            "This attempt lacks devices of spec.strategy: it has 2 stages instead of 3.");
  EXPECT_EQ(strategy.stages, 2);
  strategy.stages = 0;  // the planner decides
  EXPECT_EQ(FitStrategy(strategy, {{"turku", 0}}), "");
  EXPECT_EQ(strategy.stages, 0);
}

TEST(FittedStrategyTest, WhereReplicasDoNotFitThereAreAsManyAsAreFastest) {
  job::Strategy strategy = Pinned();
  strategy.pins.clear();
  strategy.stages = 2;
  strategy.replicas = 2;
  EXPECT_EQ(FitStrategy(strategy, {{"turku", 0}, {"turku", 1}, {"turku", 2}, {"turku", 3}}), "");
  EXPECT_EQ(strategy.replicas, 2);
  EXPECT_EQ(FitStrategy(strategy, {{"turku", 0}, {"turku", 1}, {"turku", 2}}),
            "This attempt lacks devices of spec.strategy: it has as many replicas as are fastest instead of 2.");
  EXPECT_EQ(strategy.replicas, 0);
  EXPECT_EQ(strategy.stages, 2);
  strategy.replicas = 3;
  strategy.stages = 0;
  EXPECT_EQ(FitStrategy(strategy, {{"turku", 0}, {"turku", 1}}),
            "This attempt lacks devices of spec.strategy: it has as many replicas as are fastest instead of 3.");
  strategy.replicas = 2;
  strategy.stages = 3;
  EXPECT_EQ(FitStrategy(strategy, {{"turku", 0}, {"turku", 1}}),
            "This attempt lacks devices of spec.strategy: it has as many replicas as are fastest instead of 2, and it has 2 stages instead "
            "of 3.");
  strategy.replicas = 2;
  EXPECT_EQ(FitStrategy(strategy, {}), "") << "what fits nobody is not made to fit";
  EXPECT_EQ(strategy.replicas, 2);
}

}  // namespace
}  // namespace fusionllm::op::placement
