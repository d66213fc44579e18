#include "lib/broker/data_stage_selector.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Reader = DataStageSelector::Reader;
using Objective = DataStageSelector::Objective;

std::vector<std::string> AskedOf(DataStageSelector choice) {
  std::vector<std::string> asked;
  while (const std::optional<RequestPlan> ask = choice.Next()) {
    asked.push_back(ask->data_device);
    choice.Refused("InsufficientMemory", "too small");
  }
  return asked;
}

std::string NextOf(DataStageSelector& choice) {
  const std::optional<RequestPlan> ask = choice.Next();
  return ask.has_value() ? ask->data_device : "none";
}

TEST(DataStageSelectorTest, HigherRanksComeFirstThenSitesInTurns) {
  EXPECT_THAT(AskedOf({{}, {{"a0", "a", 3}, {"b0", "b", 3}, {"c0", "c", 4}}, Objective::kAnyPlan}), ElementsAre("c0", "a0", "b0"));
  EXPECT_THAT(AskedOf({{}, {{"a0", "a", 3}, {"a1", "a", 3}, {"a2", "a", 3}, {"b0", "b", 3}, {"b1", "b", 3}}, Objective::kAnyPlan}),
              ElementsAre("a0", "b0", "a1", "b1", "a2"));
  EXPECT_THAT(AskedOf({{}, {{"a0", "a", 3}, {"a1", "a", 3}, {"b0", "b", 2}}, Objective::kAnyPlan}), ElementsAre("a0", "a1", "b0"));
}

// A run that is possible must not fail because those who come first by name cannot read.
TEST(DataStageSelectorTest, WhileAllAreRefusedEachIsAskedAboutAndOfPlansFourAreCompared) {
  std::vector<DataStageSelector::Reader> six;
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) six.push_back({.name = name, .site = name, .priority = 3});
  DataStageSelector refused({}, six, Objective::kShortestStep);
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    EXPECT_EQ(NextOf(refused), name);
    refused.Refused("InsufficientMemory", "too small");
  }
  EXPECT_EQ(NextOf(refused), "f");
  refused.Planned({.plan = {.predicted_step_seconds = 1}});
  EXPECT_EQ(NextOf(refused), "none");
  EXPECT_EQ(refused.reader(), "f");

  DataStageSelector compared({}, six, Objective::kShortestStep);
  for (const char* name : {"a", "b", "c", "d"}) {
    EXPECT_EQ(NextOf(compared), name);
    compared.Planned({.plan = {.predicted_step_seconds = 1}});
  }
  EXPECT_EQ(NextOf(compared), "none");
  EXPECT_THAT(compared.DescribeChoice(), HasSubstr("2 more were not asked about"));
}

TEST(DataStageSelectorTest, WhoIsLostIsNotAskedAboutUnlessItWas) {
  DataStageSelector choice({}, {{"a0", "a", 3}, {"b0", "b", 3}, {"c0", "c", 3}}, Objective::kAnyPlan);
  ASSERT_EQ(NextOf(choice), "a0");
  choice.Lost("a0");  // the answer is still to come
  choice.Lost("b0");
  choice.Lost("nobody");
  choice.Refused("InsufficientMemory", "too small");
  EXPECT_EQ(NextOf(choice), "c0");
  choice.Planned({});
  EXPECT_EQ(choice.DescribeChoice(), "c0 reads the data; not a0: InsufficientMemory: too small");
}

TEST(DataStageSelectorTest, WithoutReadersTheQuestionIsAskedOnceAsItIs) {
  DataStageSelector choice({.devices = {"b"}, .data_device = "gone"}, {}, Objective::kShortestStep);
  const std::optional<RequestPlan> ask = choice.Next();
  ASSERT_TRUE(ask.has_value());
  EXPECT_EQ(ask->data_device, "gone");
  EXPECT_THAT(ask->devices, ElementsAre("b"));
  choice.Refused("UnknownDevice", "who is that");
  EXPECT_EQ(NextOf(choice), "none");
  EXPECT_EQ(choice.RefusalReason(), "UnknownDevice");
  EXPECT_EQ(choice.RefusalMessage(), "who is that") << "in the planner's words where it was asked once";
}

TEST(DataStageSelectorTest, AnExtraReaderIsInTheQuestionAboutItselfAlone) {
  DataStageSelector choice({.devices = {"a", "c"}}, {{"c", "c", 3}, {.name = "b", .site = "b", .is_extra = true}}, Objective::kAnyPlan);
  EXPECT_THAT(choice.Next().value_or(RequestPlan()).devices, ElementsAre("a", "c"));
  choice.Refused("PinConflict", "c is taken");
  EXPECT_THAT(choice.Next().value_or(RequestPlan()).devices, ElementsAre("a", "b", "c"));
  choice.Planned({});
  ASSERT_TRUE(choice.has_plan());
  EXPECT_EQ(choice.reader(), "b");
  EXPECT_THAT(choice.request().devices, ElementsAre("a", "b", "c"));
}

TEST(DataStageSelectorTest, WhereAnyPlanWillDoTheFirstIsTaken) {
  DataStageSelector choice({}, {{"a", "a", 3}, {"b", "b", 3}}, Objective::kAnyPlan);
  EXPECT_EQ(NextOf(choice), "a");
  choice.Planned({.plan = {.predicted_step_seconds = 9}});
  EXPECT_EQ(NextOf(choice), "none");
  EXPECT_EQ(choice.reader(), "a");
  EXPECT_THAT(choice.DescribeChoice(), IsEmpty()) << "there was no choice to make";
}

TEST(DataStageSelectorTest, TheShortestStepToAnEqualLossIsTakenAmongTheHighestRankThatHasAPlan) {
  DataStageSelector choice({}, {{"a", "a", 4}, {"b", "b", 3}, {"c", "c", 3}, {"d", "d", 3}, {"e", "e", 2}}, Objective::kShortestStep);
  EXPECT_EQ(NextOf(choice), "a");
  choice.Refused("InsufficientMemory", "stage 0 needs more");
  EXPECT_EQ(NextOf(choice), "b");
  choice.Planned({.plan = {.predicted_step_seconds = 2}});
  EXPECT_EQ(NextOf(choice), "c");
  choice.Planned({.plan = {.predicted_step_seconds = 1, .links = {{.loss_cost = 1}}}});  // shorter, and it pays for that with loss
  EXPECT_EQ(NextOf(choice), "d");
  choice.Planned({.plan = {.predicted_step_seconds = 1.5}});
  EXPECT_EQ(NextOf(choice), "none") << "the spare is for need";
  EXPECT_EQ(choice.reader(), "d");
  EXPECT_EQ(
      choice.DescribeChoice(),
      "d reads the data: 1.5 s a step expected; not a: InsufficientMemory: stage 0 needs more; with b instead 2 s; with c instead 1 s");
}

TEST(DataStageSelectorTest, OfTwoThatAreAboutEqualOrUnknownItIsTheFirst) {
  for (const double second : {0.96, 1.0, 0.0}) {
    DataStageSelector choice({}, {{"a", "a", 3}, {"b", "b", 3}}, Objective::kShortestStep);
    EXPECT_EQ(NextOf(choice), "a");
    choice.Planned({.plan = {.predicted_step_seconds = 1}});
    EXPECT_EQ(NextOf(choice), "b");
    choice.Planned({.plan = {.predicted_step_seconds = second}});
    EXPECT_EQ(choice.reader(), "a") << second;
  }
}

TEST(DataStageSelectorTest, WhatNoOtherReaderCuresEndsTheAsking) {
  for (const char* reason : {kSchedulerFailed, "ConflictingConstraints", "InstanceTooLarge", "NoExecutors", "NoOps", "NotAvailable",
                             "OpTooLarge", "PinMatchesNoOp", "TooFewExecutors", "TooManyDevices", "TooManyReplicas", "TooManyStages", ""}) {
    DataStageSelector choice({}, {{"a", "a", 3}, {"b", "b", 3}}, Objective::kShortestStep);
    EXPECT_EQ(NextOf(choice), "a");
    choice.Refused(reason, "why");
    EXPECT_EQ(NextOf(choice), "none") << reason;
    EXPECT_EQ(choice.RefusalReason(), reason);
    EXPECT_EQ(choice.RefusalMessage(), "why");
  }
}

TEST(DataStageSelectorTest, ASchedulerThatFailsWhileItComparesLeavesThePlanThereIs) {
  DataStageSelector choice({}, {{"a", "a", 3}, {"b", "b", 3}, {"c", "c", 3}}, Objective::kShortestStep);
  EXPECT_EQ(NextOf(choice), "a");
  choice.Planned({.plan = {.predicted_step_seconds = 1}});
  EXPECT_EQ(NextOf(choice), "b");
  choice.Refused(kSchedulerFailed, "scheduler: gone");
  EXPECT_EQ(NextOf(choice), "none");
  ASSERT_TRUE(choice.has_plan());
  EXPECT_EQ(choice.reader(), "a");
  EXPECT_THAT(choice.DescribeChoice(), HasSubstr("not b: SchedulerFailed: scheduler: gone"));
}

TEST(DataStageSelectorTest, ARefusalOfAllSaysWhatAilsEach) {
  DataStageSelector choice({}, {{"a", "a", 3}, {"b", "b", 3}, {"c", "c", 3}}, Objective::kAnyPlan);
  for (const auto& [reason, message] :
       {std::pair("PinConflict", "b is pinned"), {"InsufficientMemory", "too small"}, {"InsufficientMemory", "too small"}}) {
    EXPECT_NE(NextOf(choice), "none");
    choice.Refused(reason, message);
  }
  EXPECT_EQ(NextOf(choice), "none");
  EXPECT_FALSE(choice.has_plan());
  EXPECT_EQ(choice.RefusalReason(), "PinConflict");
  EXPECT_EQ(choice.RefusalMessage(), "no plan with any of those that have the training data: a: b is pinned; b: too small; c: the same");
}

TEST(DataStageSelectorTest, WhereTheSchedulerFailedInBetweenTheRefusalIsNotTheLastWord) {
  DataStageSelector choice({}, {{"a", "a", 3}, {"b", "b", 3}}, Objective::kAnyPlan);
  EXPECT_EQ(NextOf(choice), "a");
  choice.Refused("InsufficientMemory", "too small");
  EXPECT_EQ(NextOf(choice), "b");
  choice.Refused(kSchedulerFailed, "scheduler: gone");
  EXPECT_EQ(choice.RefusalReason(), kSchedulerFailed);
}

}  // namespace
}  // namespace fusionllm::broker
