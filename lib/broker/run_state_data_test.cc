// A run whose training data not all of its executors can read, and what happens when those that can are lost.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/drill.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::Drill;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Of;
using testing::Options;
using testing::Reasons;

// Executors of which some have the data; those whose names begin with s are spares.
class DataRun : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  void Begin(const Names& names, std::set<std::string> data, double patience_s = 0) {
    RunOptions options = Options({names.begin(), names.end()});
    options.data_devices = std::move(data);
    options.data_patience_s = patience_s;
    run_.emplace(std::move(options), names);
    // As the planner does: whoever reads the data comes first.
    run_->refine_plan = [](const AskPlan& ask, PlanSummary& plan) {
      if (ask.figures_only || ask.data_device.empty()) return;
      std::erase(plan.devices, ask.data_device);
      plan.devices.insert(plan.devices.begin(), ask.data_device);
    };
    for (const std::string& name : names) run_->Join(name, /*spare=*/name[0] == 's');
    ASSERT_EQ(state().phase(), Phase::kRunning);
    run_->Step(10);
    run_->SaveShards(10);
    run_->Step(12);
  }
  RunState& state() { return run_->state; }
  const Names& devices() { return run_->state.plan().devices; }
  void Lose(const std::string& name) { run_->Feed(Left{.name = name, .incarnation = 1, .why = "killed"}); }
  void ComeBack(const std::string& name) { run_->Join(name, name[0] == 's', 100, /*incarnation=*/2); }
  std::string Failure() { return std::string(Of<Finish>(run_->all).back().status.message()); }

  std::optional<Drill> run_;
};

TEST_F(DataRun, OneOfThoseWithTheDataReadsItRatherNoSpare) {
  Begin({"a0", "b0", "c0", "s0"}, {"b0", "c0", "s0"});
  EXPECT_EQ(Of<AskPlan>(run_->all).back().data_device, "b0");
  EXPECT_THAT(devices(), ElementsAre("b0", "a0", "c0"));
  Lose("a0");
  EXPECT_THAT(devices(), ElementsAre("b0", "s0", "c0")) << "in need it is a spare like others";
  EXPECT_EQ(Of<AskPlan>(run_->all).back().data_device, "b0");
}

TEST_F(DataRun, ASpareWithTheDataTakesTheFirstStage) {
  Begin({"a0", "b0", "s0", "s1"}, {"a0", "s1"});
  Lose("a0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("s1", "b0")) << "s0 cannot read it";
  EXPECT_THAT(Reasons(run_->all), AllOf(Contains("SpareActivated"), Not(Contains("Replanned"))));
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
  EXPECT_EQ(Of<AskPlan>(run_->all).back().data_device, "s1") << "the figures are of the stages as they are now";
}

TEST_F(DataRun, WithoutSuchASpareAnotherOneWithTheDataGetsTheFirstStageOfAnotherPlan) {
  Begin({"a0", "b0", "c0", "s0"}, {"a0", "c0"});
  ASSERT_THAT(devices(), ElementsAre("a0", "b0", "c0"));
  Lose("a0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("c0", "b0", "s0"));
  EXPECT_THAT(Reasons(run_->all), Contains("Replanned"));
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
  ComeBack("a0");
  Lose("b0");
  EXPECT_EQ(devices()[0], "c0") << "who reads the data goes on reading it";
}

TEST_F(DataRun, ASpareThatIsTheLastOneWithTheDataIsPlannedInEvenIfItIsTooSmallForTheStageAsItIs) {
  Begin({"a0", "b0"}, {"a0", "s0"});
  run_->stage_devices = {"a0", "b0", "s0"};
  run_->Join("s0", /*spare=*/true, /*memory=*/10);
  Lose("a0");
  EXPECT_EQ(Of<AskPlan>(run_->all).back().data_device, "s0");
  EXPECT_THAT(devices(), ElementsAre("s0", "b0"));
}

TEST_F(DataRun, WhenNobodyWithTheDataIsLeftAndNobodyStartsThemAgainTheRunEndsAndNamesThemAll) {
  Begin({"a0", "b0", "c0"}, {"a0", "c0"});
  Lose("a0");
  ASSERT_EQ(state().phase(), Phase::kRunning);
  run_->Step(12);
  Lose("c0");
  EXPECT_EQ(state().phase(), Phase::kFailed);
  EXPECT_EQ(
      Failure(),
      "a0, c0, which alone have the training data, were lost after step 12; started again, the run goes on after step 10, from step-10");
}

TEST_F(DataRun, OneThatIsStartedAgainGoesOnWithItsStage) {
  Begin({"a0", "b0"}, {"a0"}, /*patience_s=*/300);
  const size_t plans = Of<AskPlan>(run_->all).size();
  Lose("a0");
  EXPECT_EQ(state().phase(), Phase::kGathering);
  EXPECT_THAT(Of<Announce>(run_->all).back().message, AllOf(HasSubstr("a0 is waited for"), HasSubstr("300 s")));
  ASSERT_TRUE(run_->timer.has_value());
  EXPECT_EQ(run_->timer->seconds, 300);
  const uint64_t timer = run_->timer->id;
  run_->Join("s0", /*spare=*/true);
  Lose("s0");
  run_->Feed(GatheringOver{});
  EXPECT_EQ(state().phase(), Phase::kGathering) << "others are of no help";
  EXPECT_EQ(run_->timer->id, timer) << "nor do they make the wait longer";
  ComeBack("a0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("a0", "b0"));
  EXPECT_EQ(Of<AskPlan>(run_->all).size(), plans) << "the plan is what it was";
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
  run_->Step(11);
  EXPECT_EQ(state().last_step(), 11);
}

TEST_F(DataRun, AnyOfThemWillDo) {
  Begin({"a0", "b0", "c0"}, {"a0", "c0"}, /*patience_s=*/300);
  Lose("a0");
  Lose("c0");
  ASSERT_EQ(state().phase(), Phase::kGathering);
  ComeBack("c0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(devices()[0], "c0");
}

TEST_F(DataRun, OneThatDoesNotComeBackEndsTheRunInTime) {
  Begin({"a0", "b0"}, {"a0"}, /*patience_s=*/300);
  Lose("a0");
  run_->Feed(Overdue{.id = run_->timer->id});
  EXPECT_EQ(state().phase(), Phase::kFailed);
  EXPECT_THAT(Failure(),
              HasSubstr("a0, which alone has the training data, was lost after step 12, and did not come back in 300 s; started"));
}

TEST_F(DataRun, APlanThatWasToBeMadeIsMadeWhenTheDataAreBack) {
  Begin({"a0", "b0", "c0"}, {"a0"}, /*patience_s=*/300);
  run_->ignores = [](const Action& action) { return std::holds_alternative<AskPlan>(action); };
  Lose("b0");
  ASSERT_EQ(state().phase(), Phase::kPlanning);
  Lose("a0");
  ASSERT_EQ(state().phase(), Phase::kGathering);
  const size_t plans = Of<AskPlan>(run_->all).size();
  run_->ignores = nullptr;
  ComeBack("a0");
  EXPECT_EQ(Of<AskPlan>(run_->all).size(), plans + 1);
  EXPECT_THAT(devices(), ElementsAre("a0", "c0"));
}

TEST_F(DataRun, AUserWhoStopsTheRunDoesNotWaitForTheData) {
  Begin({"a0", "b0"}, {"a0"}, /*patience_s=*/300);
  Lose("a0");
  run_->Feed(StopAsked{});
  EXPECT_EQ(state().phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run_->all).back().interrupted);
}

TEST_F(DataRun, WhereAllHaveTheDataNobodyIsNamed) {
  Begin({"a0", "b0"}, {});
  for (const AskPlan& ask : Of<AskPlan>(run_->all)) EXPECT_THAT(ask.data_device, IsEmpty());
  Lose("a0");
  EXPECT_THAT(devices(), ElementsAre("b0"));
}

}  // namespace
}  // namespace fusionllm::broker
