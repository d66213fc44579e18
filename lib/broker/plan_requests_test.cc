#include "lib/broker/plan_requests.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_state_harness.h"
#include "lib/broker/timeouts.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Of;
using testing::Reasons;
using ::testing::SizeIs;

class PlanRequestsTest : public ::testing::Test {
 protected:
  explicit PlanRequestsTest(RunOptions options = {.data_devices = {"a0", "b0"}, .micro_batch_size = 2})
      : executors_(options), measurement_(options), epoch_(options), requests_(options) {
    for (const char* name : {"a0", "b0", "c0"}) Join(name);
    Join("s0", /*spare=*/true);
    measurement_.Adopt({{"a0", "{}"}, {"b0", "{}"}, {"c0", "{}"}}, {});
  }
  void Join(const std::string& name, bool spare = false) {
    executors_.Join({.name = name, .incarnation = 1, .site = name.substr(0, 1), .spare = spare});
  }
  RequestPlan Compose(bool with_spares = false, const std::map<std::string, double>& slowness = {}) {
    return requests_.Compose(with_spares, slowness, "int8", epoch_, executors_);
  }
  void Select(DataStageSelector::Objective objective = DataStageSelector::Objective::kAnyPlan) {
    requests_.Select(Compose(), objective, {}, epoch_, executors_, measurement_);
  }
  RequestPlan AskNext() {
    EXPECT_TRUE(requests_.AskNext(queue_));
    return Of<RequestPlan>(queue_.Take()).back();
  }

  ExecutorSet executors_;
  Measurement measurement_;
  PlanEpoch epoch_;
  PlanRequests requests_;
  ActionQueue queue_;
};

TEST_F(PlanRequestsTest, QuestionIsAboutWhoIsPresent) {
  const RequestPlan first = Compose();
  EXPECT_THAT(first.devices, ElementsAre("a0", "b0", "c0"));
  EXPECT_FALSE(first.after_loss);
  EXPECT_EQ(first.micro_batch_size, 2);
  EXPECT_EQ(first.codec_limit, "int8");
  EXPECT_THAT(Compose(/*with_spares=*/true).devices, SizeIs(4));
  epoch_.SetPlan({.devices = {"a0", "s0"}, .plan = {.micro_batch_size = 4}});
  epoch_.Begin(0);
  const RequestPlan second = Compose();
  EXPECT_THAT(second.devices, SizeIs(4)) << "the spare has a stage";
  EXPECT_TRUE(second.after_loss);
  EXPECT_EQ(second.micro_batch_size, 4);
}

TEST_F(PlanRequestsTest, SlownessAddsUpOverThePlansThatKnewIt) {
  EXPECT_EQ(Compose(false, {{"a0", 2}}).slowness.at("a0"), 2);
  EXPECT_EQ(Compose(false, {{"a0", 3}}).slowness.at("a0"), 3) << "no plan was taken that knows it";
  requests_.TakeSlowness();
  EXPECT_EQ(Compose(false, {{"a0", 2}}).slowness.at("a0"), 6);
}

TEST_F(PlanRequestsTest, AnswersCountToTheLastQuestionAlone) {
  EXPECT_FALSE(requests_.Answers(0));
  requests_.BeginPlanning();
  Select();
  const RequestPlan first = AskNext();
  EXPECT_TRUE(requests_.Answers(first.id));
  requests_.BeginPlanning();
  Select();
  const RequestPlan second = AskNext();
  EXPECT_FALSE(requests_.Answers(first.id));
  EXPECT_TRUE(requests_.Answers(second.id));
}

TEST_F(PlanRequestsTest, NextReaderIsAskedAboutWhereOneIsRefused) {
  requests_.BeginPlanning();
  Select();
  const RequestPlan first = AskNext();
  EXPECT_EQ(first.data_device, "a0");
  requests_.Refused("InsufficientMemory", "too little");
  EXPECT_EQ(AskNext().data_device, "b0");
  requests_.Refused("InsufficientMemory", "too little");
  EXPECT_FALSE(requests_.AskNext(queue_));
  EXPECT_FALSE(requests_.has_plan());
  EXPECT_NE(requests_.RefusalMessage(), "");
}

TEST_F(PlanRequestsTest, ComparisonOfReadersWaitsLessForTheSecond) {
  requests_.BeginPlanning();
  Select(DataStageSelector::Objective::kShortestStep);
  EXPECT_TRUE(requests_.AskNext(queue_));
  EXPECT_EQ(Of<StartTimer>(queue_.Take()).back().seconds, kPlanSeconds);
  requests_.Planned({.devices = {"a0"}, .plan = {.predicted_step_seconds = 2}});
  EXPECT_TRUE(requests_.AskNext(queue_));
  EXPECT_EQ(Of<StartTimer>(queue_.Take()).back().seconds, kComparisonSeconds);
  requests_.Planned({.devices = {"b0"}, .plan = {.predicted_step_seconds = 1}});
  EXPECT_FALSE(requests_.AskNext(queue_));
  const RunPlan plan = requests_.Selected(executors_, measurement_);
  EXPECT_THAT(plan.devices, ElementsAre("b0"));
  EXPECT_EQ(plan.executors, 3);
  EXPECT_THAT(requests_.devices_asked(), ElementsAre("a0", "b0", "c0"));
  requests_.EmitDataStageSelected(0, queue_);
  EXPECT_THAT(Reasons(queue_.Take()), ElementsAre("DataStageSelected"));
}

TEST_F(PlanRequestsTest, ReaderOfThePlanInForceIsAskedAboutFirst) {
  epoch_.SetPlan({.devices = {"b0", "c0"}});
  requests_.BeginPlanning();
  Select();
  EXPECT_EQ(AskNext().data_device, "b0");
}

TEST_F(PlanRequestsTest, LostReaderIsNotAskedAbout) {
  requests_.BeginPlanning();
  Select();
  requests_.OnLost("a0");
  EXPECT_EQ(AskNext().data_device, "b0");
}

TEST_F(PlanRequestsTest, JoinersSinceTheQuestionAreKnown) {
  requests_.BeginPlanning();
  EXPECT_FALSE(requests_.joined_since_asked());
  requests_.OnJoined();
  EXPECT_TRUE(requests_.joined_since_asked());
  requests_.BeginPlanning();
  EXPECT_FALSE(requests_.joined_since_asked());
}

TEST_F(PlanRequestsTest, FiguresAreAskedForOfTheStagesAsTheyAre) {
  const RunPlan plan{.document = "{}", .devices = {"a0", "s0"}};
  requests_.AskForFigures(Compose(), plan, queue_);
  EXPECT_TRUE(requests_.AsksForFigures());
  const RequestPlan ask = Of<RequestPlan>(queue_.Take()).back();
  EXPECT_TRUE(ask.figures_only);
  EXPECT_EQ(ask.devices, plan.devices);
  EXPECT_EQ(ask.current_plan->devices, plan.devices);
  EXPECT_EQ(ask.data_device, "a0");
  EXPECT_TRUE(requests_.Answers(ask.id));
  requests_.BeginPlanning();
  EXPECT_FALSE(requests_.AsksForFigures());
}

TEST_F(PlanRequestsTest, AlternativeLeavesOutWhoWasLostMeanwhile) {
  Select();
  executors_.Leave("c0", 1);
  const std::optional<RequestPlan> ask = requests_.NextAlternative(executors_, measurement_);
  ASSERT_TRUE(ask.has_value());
  EXPECT_THAT(ask->devices, ElementsAre("a0", "b0"));
  EXPECT_THAT(queue_.Take(), IsEmpty()) << "Replanner asks";
  RunPlan plan;
  requests_.SetExecutors(plan, executors_);
  EXPECT_EQ(plan.executors, 2);
}

}  // namespace
}  // namespace fusionllm::broker
