#include "lib/broker/run_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/plan/testing/plans.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

RunPlan Made(const plan::Plan& plan) { return {.devices = DevicesByRank(plan), .plan = plan}; }

TEST(RunPlanTest, RanksAreNumberedReplicaByReplica) {
  const RunPlan run = Made(plan::testing::TwoPipelines());
  EXPECT_THAT(run.devices, ElementsAre("paris-0", "tokyo-0", "paris-1", "tokyo-1"));
  EXPECT_EQ(run.stages(), 2);
  EXPECT_EQ(run.RankOf("paris-1"), 2);
  EXPECT_EQ(run.RankOf("lab-3"), -1);
  EXPECT_EQ(run.Describe(2), "stage 0 of replica 1");
  EXPECT_EQ(run.MicroBatchesOf(0), 5);
  EXPECT_EQ(run.MicroBatchesOf(3), 3);
  EXPECT_THAT(run.MemoryBytes(), ElementsAre(1 << 20, 2 << 20, 4096, 4096));
}

TEST(RunPlanTest, LinksHaveTheRanksOfTheirReplica) {
  const RunPlan run = Made(plan::testing::TwoPipelines());
  EXPECT_THAT(run.RanksOf(run.plan.links[0]), Pair(0, 1));
  EXPECT_THAT(run.RanksOf(run.plan.links[1]), Pair(1, 0));
  EXPECT_THAT(run.RanksOf(run.plan.links[2]), Pair(2, 3));
  EXPECT_THAT(run.RanksOf({.src = "lab-3", .src_stage = 0, .dst_stage = 1}), Pair(-1, -1));
  EXPECT_THAT(run.RanksOf({.src = "paris-0", .src_stage = 0, .dst_stage = 2}), Pair(-1, -1));
}

TEST(RunPlanTest, SpareKeepsTheLinksAndHasNoTimesOfThePlan) {
  RunPlan run = Made(plan::testing::TwoStages());
  EXPECT_THAT(testing::BusySeconds(run), ElementsAre(1.0 / 3, 0.02));
  run.devices[1] = "lab-3";
  EXPECT_THAT(testing::BusySeconds(run), ElementsAre(1.0 / 3, 0));
  EXPECT_THAT(run.RanksOf(run.plan.links[0]), Pair(0, 1));
  EXPECT_EQ(run.MemoryBytesOf(1), 2 << 20) << "the stage needs what it needs";
}

TEST(RunPlanTest, WithoutAPlanNothingIsKnown) {
  const RunPlan none, unread{.devices = {"a", "b"}};
  EXPECT_EQ(none.stages(), 0);
  EXPECT_FALSE(none.Uses("a"));
  EXPECT_EQ(unread.stages(), 2);
  EXPECT_EQ(unread.MicroBatchesOf(1), 0);
  EXPECT_THAT(unread.MemoryBytes(), ElementsAre(0, 0));
  EXPECT_THAT(testing::BusySeconds(unread), ElementsAre(0, 0));
  EXPECT_THAT(unread.RanksOf({.src = "a", .src_stage = 0, .dst_stage = 1}), Pair(-1, -1));
}

}  // namespace
}  // namespace fusionllm::broker
