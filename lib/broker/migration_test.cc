#include "lib/broker/migration.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_plans.h"

namespace fusionllm::broker {
namespace {

using Decision = MigrationPolicy::Decision;

// 1 s a step saved, for 100 steps, at a cost of 20 s.
MigrationEstimate Good() { return {.step_s = 2, .other_step_s = 1, .steps_left = 100, .cost_s = 20}; }

TEST(MigrationPolicyTest, MovesWhenItPaysTwiceInARow) {
  MigrationPolicy policy;
  std::string figures;
  EXPECT_EQ(policy.Decide(Good(), &figures), Decision::kAskAgain);
  EXPECT_EQ(policy.Decide(Good(), &figures), Decision::kMove);
  EXPECT_THAT(figures, ::testing::AllOf(::testing::HasSubstr("1 s a step instead of 2 s"), ::testing::HasSubstr("100 s over 100 steps"),
                                        ::testing::HasSubstr("20 s")));
  EXPECT_EQ(policy.Decide(Good(), &figures), Decision::kAskAgain) << "the count starts again";
}

TEST(MigrationPolicyTest, AFigureThatIsNotThePlannersTellsWhatItIsMadeOf) {
  MigrationPolicy policy;
  std::string figures;
  MigrationEstimate late = Good();
  late.bias = 2;
  policy.Decide(late, &figures);
  EXPECT_THAT(figures,
              ::testing::HasSubstr("1 s a step (0.5 s predicted, times 2 for what predictions of this run are off by) instead of 2 s"));
}

TEST(MigrationPolicyTest, StaysWhereTheMoveCostsMoreThanTheRestOfTheRunGains) {
  MigrationPolicy policy;
  std::string figures;
  MigrationEstimate late = Good();
  late.steps_left = 20;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(policy.Decide(late, &figures), Decision::kStay);
  late.steps_left = 21;
  EXPECT_EQ(policy.Decide(late, &figures), Decision::kAskAgain);
}

TEST(MigrationPolicyTest, ADoubtInBetweenStartsTheCountAgain) {
  MigrationPolicy policy;
  std::string figures;
  MigrationEstimate bad = Good();
  bad.other_step_s = 1.99;  // a gain within the noise, whatever the number of steps
  bad.steps_left = 1'000'000;
  EXPECT_EQ(policy.Decide(Good(), &figures), Decision::kAskAgain);
  EXPECT_EQ(policy.Decide(bad, &figures), Decision::kStay);
  EXPECT_EQ(policy.Decide(Good(), &figures), Decision::kAskAgain);
}

TEST(MigrationPolicyTest, TimeBoughtWithLossIsWorthLess) {
  MigrationPolicy policy;
  std::string figures;
  MigrationEstimate harsh = Good();
  harsh.other_step_s = 1.7;
  EXPECT_EQ(policy.Decide(harsh, &figures), Decision::kAskAgain);
  harsh.other_loss_cost = 0.1;  // worth 29 % of the step
  EXPECT_EQ(policy.Decide(harsh, &figures), Decision::kStay);
}

// Two pipelines of two stages: c > d, the second, has the only link that costs anything.
RunPlan TwoPipelines(std::vector<int> shares) {
  RunPlan plan = testing::PlanOn({"a", "b", "c", "d"}, {}, /*memory_bytes=*/0, /*replicas=*/2);
  plan.plan.links = {testing::Between(plan, 0, 1), testing::Between(plan, 2, 3, {.codec = "topk", .loss_cost = 0.1})};
  plan.plan.micro_batches_by_replica = std::move(shares);
  return plan;
}

TEST(LossCostTest, APipelinesLinksCostWhatItTakesOfTheBatch) {
  EXPECT_DOUBLE_EQ(LossCost(TwoPipelines({7, 1})), 0.1 / 8);
  EXPECT_DOUBLE_EQ(LossCost(TwoPipelines({1, 7})), 0.1 * 7 / 8);
  EXPECT_DOUBLE_EQ(LossCost(TwoPipelines({})), 0.1 / 2) << "as much each where the plan does not say";
  RunPlan one = testing::PlanOn({"a", "b"});
  one.plan.links = {testing::Between(one, 0, 1, {.loss_cost = 0.1}), testing::Between(one, 1, 0, {.loss_cost = 0.2})};
  EXPECT_DOUBLE_EQ(LossCost(one), 0.3);
}

// With the weight of half a batch the link would seem to take more than the least gain of a step.
TEST(LossCostTest, AHarshLinkOfASmallShareIsNoReasonToMove) {
  MigrationEstimate given = Good();
  given.step_s = given.other_step_s = 1;
  given.steps_left = 1'000'000;
  MigrationPolicy policy;
  std::string figures;
  given.loss_cost = LossCost(TwoPipelines({1, 1}));
  EXPECT_EQ(policy.Decide(given, &figures), Decision::kAskAgain);
  given.loss_cost = LossCost(TwoPipelines({7, 1}));
  EXPECT_EQ(policy.Decide(given, &figures), Decision::kStay);
}

}  // namespace
}  // namespace fusionllm::broker
