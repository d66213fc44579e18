// A run whose training data not all of its executors can read, and what happens when those that can are lost.
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Of;
using testing::Options;
using testing::Reasons;
using testing::RunStateHarness;
using ::testing::SizeIs;

// Executors of which some have the data; those whose names begin with s are spares.
class DataRun : public ::testing::Test {
 protected:
  using Names = std::vector<std::string>;

  void Gather(const Names& names, std::set<std::string> data, double timeout_s = 0) {
    RunOptions options = Options({names.begin(), names.end()});
    options.data_devices = std::move(data);
    options.data_timeout_s = timeout_s;
    run_.emplace(std::move(options), names);
    // As the planner does: the one that reads the data comes first.
    run_->refine_plan = [this](const RequestPlan& ask, RunPlan& plan) {
      if (ask.figures_only || ask.data_device.empty()) return;
      std::erase(plan.devices, ask.data_device);
      plan.devices.insert(plan.devices.begin(), ask.data_device);
      if (step_s_.contains(ask.data_device)) plan.plan.predicted_step_seconds = step_s_.at(ask.data_device);
    };
    run_->refuse = [this](const RequestPlan& ask) -> std::optional<PlanRefused> {
      const auto found = refused_.find(ask.data_device);
      if (found == refused_.end() || ask.figures_only) return std::nullopt;
      return PlanRefused{.reason = found->second, .message = "not with " + ask.data_device};
    };
    if (ignores_) run_->ignores = ignores_;
    for (const std::string& name : names) run_->Join(name, /*spare=*/name[0] == 's');
  }
  // A run that has made 12 steps, the first 10 of them saved.
  void Begin(const Names& names, std::set<std::string> data, double timeout_s = 0) {
    Gather(names, std::move(data), timeout_s);
    ASSERT_EQ(state().phase(), Phase::kRunning);
    run_->Step(10);
    run_->SaveShards(10);
    run_->Step(12);
  }
  RunState& state() { return run_->state; }
  const Names& devices() { return run_->state.plan().devices; }
  void Lose(const std::string& name) { run_->Feed(ExecutorLeft{.name = name, .incarnation = 1, .why = "killed"}); }
  void StepAndMeasure(int64_t step) {
    run_->Step(step, 3, 1);
    for (const std::string& device : Names(devices())) {
      run_->Feed(StageMeasured{.epoch = state().epoch(), .name = device, .step = step, .busy_s = 0.4});
    }
  }
  void ComeBack(const std::string& name) { run_->Join(name, name[0] == 's', 100, /*incarnation=*/2); }
  std::string Failure() { return std::string(Of<Finish>(run_->all).back().status.message()); }

  // Whom the planner was asked about.
  Names Readers() {
    Names readers;
    for (const RequestPlan& ask : Of<RequestPlan>(run_->all)) readers.push_back(ask.data_device);
    return readers;
  }

  std::optional<RunStateHarness> run_;
  std::map<std::string, double> step_s_;        // of a plan with this one as the reader; others': unknown
  std::map<std::string, std::string> refused_;  // as readers, and why
  std::function<bool(const Action&)> ignores_;
};

TEST_F(DataRun, OneOfThoseWithTheDataReadsItRatherNoSpare) {
  Begin({"a0", "b0", "c0", "s0"}, {"b0", "c0", "s0"});
  EXPECT_THAT(Readers(), ElementsAre("b0", "c0"));
  EXPECT_THAT(devices(), ElementsAre("b0", "a0", "c0"));
  Lose("a0");
  EXPECT_THAT(devices(), ElementsAre("b0", "s0", "c0")) << "in need it is a spare like others";
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().data_device, "b0");
}

// ---- Which of several -------------------------------------------------------------------------------------------------------------------

TEST_F(DataRun, TheFirstPlanHasTheReaderOfTheShortestStep) {
  step_s_ = {{"a0", 2}, {"b0", 1}, {"c0", 1.5}};
  Begin({"a0", "b0", "c0", "s0"}, {"a0", "b0", "c0", "s0"});
  EXPECT_THAT(Readers(), ElementsAre("a0", "b0", "c0"));
  EXPECT_THAT(devices(), ElementsAre("b0", "a0", "c0"));
  ASSERT_THAT(run_->EventsNamed("DataStageSelected"), SizeIs(1));
  EXPECT_EQ(run_->EventsNamed("DataStageSelected")[0].message,
            "b0 reads the data: 1 s a step expected; with a0 instead 2 s; with c0 instead 1.5 s");
  EXPECT_EQ(run_->EventsNamed("DataStageSelected")[0].device, "b0");
  EXPECT_EQ(state().plan().executors, 3);
}

TEST_F(DataRun, WhereOneIsRefusedAnotherReads) {
  refused_ = {{"a0", "InsufficientMemory"}};
  Begin({"a0", "b0", "c0"}, {"a0", "c0"});
  ASSERT_THAT(devices(), ElementsAre("c0", "a0", "b0"));
  EXPECT_EQ(run_->EventsNamed("DataStageSelected").back().message, "c0 reads the data; not a0: InsufficientMemory: not with a0");
}

TEST_F(DataRun, WhereAllAreRefusedTheRunEndsWithWhatAilsEach) {
  refused_ = {{"a0", "InsufficientMemory"}, {"c0", "PinConflict"}};
  Gather({"a0", "b0", "c0"}, {"a0", "c0"});
  EXPECT_EQ(state().phase(), Phase::kFailed);
  EXPECT_EQ(Failure(), "no plan with any of those that have the training data: a0: not with a0; c0: not with c0");
  EXPECT_EQ(Of<Finish>(run_->all).back().refusal_reason, "InsufficientMemory");
}

TEST_F(DataRun, HeldBackSpareReadsDataAsLastResort) {
  refused_ = {{"a0", "InsufficientMemory"}};
  Begin({"a0", "b0", "s0", "s1"}, {"a0", "s0"});
  ASSERT_THAT(Readers(), ElementsAre("a0", "s0"));
  EXPECT_THAT(Of<RequestPlan>(run_->all).back().devices, ElementsAre("a0", "b0", "s0")) << "and no other spare";
  EXPECT_EQ(devices()[0], "s0");
  EXPECT_EQ(state().plan().executors, 3);
}

TEST_F(DataRun, AnAnswerThatDoesNotComeToAComparisonLeavesThePlanThereIs) {
  int questions = 0;
  ignores_ = [&](const Action& action) { return std::holds_alternative<RequestPlan>(action) && ++questions > 1; };
  Gather({"a0", "b0"}, {"a0", "b0"});
  ASSERT_EQ(state().phase(), Phase::kPlanning);
  EXPECT_EQ(run_->timer->seconds, 20);
  run_->Feed(TimerFired{.id = run_->timer->id});
  ASSERT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(devices()[0], "a0");
}

TEST_F(DataRun, LossDuringDataStageSelectionRestartsIt) {
  step_s_ = {{"a0", 1}, {"b0", 2}};
  int questions = 0;
  ignores_ = [&](const Action& action) { return std::holds_alternative<RequestPlan>(action) && ++questions == 2; };
  Gather({"a0", "b0", "c0"}, {"a0", "b0"});
  ASSERT_EQ(state().phase(), Phase::kPlanning);
  Lose("a0");
  ASSERT_EQ(state().phase(), Phase::kGathering) << "for it may be being started again";
  run_->Feed(TimerFired{.id = run_->timer->id});
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("b0", "c0")) << "the plan with a0 counts no more";
}

TEST_F(DataRun, AfterALossTheNextIsAskedAboutOnlyWhereOneIsRefused) {
  step_s_ = {{"a0", 3}, {"b0", 2}, {"c0", 1}, {"d0", 4}};
  refused_ = {{"b0", "DisconnectedDevices"}};
  Begin({"a0", "b0", "c0", "d0"}, {"a0", "b0", "c0", "d0"});
  ASSERT_EQ(devices()[0], "c0");
  const size_t before = Readers().size();
  Lose("c0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(Readers().size(), before + 1) << "a0 will do";
  EXPECT_EQ(devices()[0], "a0");
  Lose("a0");
  ASSERT_EQ(Readers().size(), before + 3);
  EXPECT_THAT(devices(), ElementsAre("d0", "b0"));
  EXPECT_EQ(run_->EventsNamed("DataStageSelected").back().message,
            "d0 reads the data: 4 s a step expected; not b0: DisconnectedDevices: not with b0");
}

TEST_F(DataRun, APlanToMoveToMayHaveAnotherReader) {
  step_s_ = {{"a0", 1}, {"b0", 1}, {"c0", 1}};
  Begin({"a0", "b0", "c0"}, {"a0", "c0"});
  ASSERT_THAT(devices(), ElementsAre("a0", "b0", "c0"));
  Lose("b0");
  ASSERT_THAT(devices(), ElementsAre("a0", "c0"));
  refused_ = {{"a0", "InsufficientMemory"}};
  step_s_ = {{"c0", 0.1}};
  ComeBack("b0");
  const size_t before = Readers().size();
  for (int64_t step = 13; Of<SendStop>(run_->all).empty() && step < 60; ++step) StepAndMeasure(step);
  ASSERT_THAT(Of<SendStop>(run_->all), SizeIs(1));
  EXPECT_EQ(Readers().size(), before + 4) << "twice about both";
  EXPECT_EQ(run_->Alternatives().back().data_device, "c0");
  EXPECT_TRUE(run_->Alternatives().back().current_plan.has_value());
  run_->EndAtBoundary();
  EXPECT_EQ(devices()[0], "c0");
  EXPECT_THAT(run_->EventsNamed("DataStageSelected").back().message, HasSubstr("not a0: InsufficientMemory: not with a0"));
}

TEST_F(DataRun, AboutAReaderThatIsLostBeforeItsQuestionNothingIsAsked) {
  Begin({"a0", "b0", "c0"}, {"a0", "s0"});
  Lose("b0");
  run_->ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  run_->Join("s0", /*spare=*/true);
  StepAndMeasure(13);  // so is s0
  ComeBack("b0");
  for (int64_t step = 14; run_->Alternatives().empty() && step < 60; ++step) StepAndMeasure(step);
  ASSERT_THAT(run_->Alternatives(), SizeIs(1));
  ASSERT_EQ(run_->Alternatives()[0].data_device, "a0");
  Lose("s0");
  run_->Feed(AlternativePlanned{.alternative = run_->Alternatives()[0].alternative,
                                .plan = absl::FailedPreconditionError("not with a0"),
                                .refusal_reason = "InsufficientMemory"});
  EXPECT_THAT(run_->Alternatives(), SizeIs(1)) << "s0 reads nothing any more";
  ASSERT_THAT(run_->EventsNamed("ReplanDeclined"), SizeIs(1));
  EXPECT_EQ(run_->EventsNamed("ReplanDeclined")[0].message, "b0 stays a spare: not with a0");
}

// ---- Losses -----------------------------------------------------------------------------------------------------------------------------

TEST_F(DataRun, ASpareWithTheDataTakesTheFirstStage) {
  Begin({"a0", "b0", "s0", "s1"}, {"a0", "s1"});
  Lose("a0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("s1", "b0")) << "s0 cannot read it";
  EXPECT_THAT(Reasons(run_->all), AllOf(Contains("SpareActivated"), Not(Contains("Replanned"))));
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().data_device, "s1") << "the figures are of the stages as they are now";
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
  EXPECT_EQ(Of<RequestPlan>(run_->all).back().data_device, "s0");
  EXPECT_THAT(devices(), ElementsAre("s0", "b0"));
}

TEST_F(DataRun, FailsNamingDataDevicesWhenAllAreLost) {
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
  Begin({"a0", "b0"}, {"a0"}, /*timeout_s=*/300);
  const size_t plans = Of<RequestPlan>(run_->all).size();
  Lose("a0");
  EXPECT_EQ(state().phase(), Phase::kGathering);
  EXPECT_THAT(Of<EmitEvent>(run_->all).back().message, AllOf(HasSubstr("a0 is waited for"), HasSubstr("300 s")));
  ASSERT_TRUE(run_->timer.has_value());
  EXPECT_EQ(run_->timer->seconds, 300);
  const uint64_t timer = run_->timer->id;
  run_->Join("s0", /*spare=*/true);
  Lose("s0");
  run_->Feed(JoinTimeout{});
  EXPECT_EQ(state().phase(), Phase::kGathering) << "others are of no help";
  EXPECT_EQ(run_->timer->id, timer) << "nor do they make the wait longer";
  ComeBack("a0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("a0", "b0"));
  EXPECT_EQ(Of<RequestPlan>(run_->all).size(), plans) << "the plan is what it was";
  EXPECT_EQ(Of<SendAssign>(run_->all).back().first_step, 11);
  run_->Step(11);
  EXPECT_EQ(state().last_step(), 11);
}

TEST_F(DataRun, AnyOfThemWillDo) {
  Begin({"a0", "b0", "c0"}, {"a0", "c0"}, /*timeout_s=*/300);
  Lose("a0");
  Lose("c0");
  ASSERT_EQ(state().phase(), Phase::kGathering);
  ComeBack("c0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_EQ(devices()[0], "c0");
}

TEST_F(DataRun, OneThatDoesNotComeBackEndsTheRunInTime) {
  Begin({"a0", "b0"}, {"a0"}, /*timeout_s=*/300);
  Lose("a0");
  run_->Feed(TimerFired{.id = run_->timer->id});
  EXPECT_EQ(state().phase(), Phase::kFailed);
  EXPECT_THAT(Failure(),
              HasSubstr("a0, which alone has the training data, was lost after step 12, and did not come back in 300 s; started"));
}

TEST_F(DataRun, APlanThatWasToBeMadeIsMadeWhenTheDataAreBack) {
  Begin({"a0", "b0", "c0"}, {"a0"}, /*timeout_s=*/300);
  run_->ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  Lose("b0");
  ASSERT_EQ(state().phase(), Phase::kPlanning);
  Lose("a0");
  ASSERT_EQ(state().phase(), Phase::kGathering);
  const size_t plans = Of<RequestPlan>(run_->all).size();
  run_->ignores = nullptr;
  ComeBack("a0");
  EXPECT_EQ(Of<RequestPlan>(run_->all).size(), plans + 1);
  EXPECT_THAT(devices(), ElementsAre("a0", "c0"));
}

TEST_F(DataRun, AUserWhoStopsTheRunDoesNotWaitForTheData) {
  Begin({"a0", "b0"}, {"a0"}, /*timeout_s=*/300);
  Lose("a0");
  run_->Feed(StopRequested{});
  EXPECT_EQ(state().phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run_->all).back().interrupted);
}

// ---- Before the first plan --------------------------------------------------------------------------------------------------------------

TEST_F(DataRun, AnnouncesWaitForDataDevicesOnce) {
  RunOptions options = Options({"a0", "b0", "c0", "d0"});
  options.data_devices = {"a0", "d0"};
  run_.emplace(std::move(options), Names{"a0", "b0", "c0", "d0"});
  run_->Join("b0");
  EXPECT_EQ(run_->timer->seconds, 120) << "c0 is missing, too";
  run_->Join("c0");
  EXPECT_THAT(run_->EventsNamed("WaitingForData"), IsEmpty()) << "somebody is always the last";
  EXPECT_EQ(run_->timer->seconds, 10);
  run_->Feed(TimerFired{.id = run_->timer->id});
  ASSERT_EQ(state().phase(), Phase::kGathering);
  ASSERT_THAT(run_->EventsNamed("WaitingForData"), SizeIs(1));
  EXPECT_EQ(run_->EventsNamed("WaitingForData")[0].message,
            "no device that has the training data is here: a0 or d0 is waited for, 110 s without news at most");
  ASSERT_TRUE(run_->timer.has_value());
  EXPECT_EQ(run_->timer->seconds, 110);
  Lose("c0");
  ComeBack("c0");
  EXPECT_EQ(run_->timer->seconds, 120) << "it has been told";
  run_->Feed(TimerFired{.id = run_->timer->id});
  EXPECT_EQ(state().phase(), Phase::kFailed);
  EXPECT_THAT(run_->EventsNamed("WaitingForData"), SizeIs(1));
  EXPECT_EQ(Failure(), "no device that has the training data has joined: a0 or d0 was waited for");
}

TEST_F(DataRun, ARunThatOthersMayJoinWaitsForTheDataWithoutALimitAndSaysSo) {
  RunOptions options = Options({"local-0"});
  options.data_devices = {"local-0"};
  options.min_executors = 3;
  run_.emplace(std::move(options), Names{"local-0", "a0", "b0"});
  run_->Join("a0");
  EXPECT_FALSE(run_->timer.has_value()) << "another one is missing besides";
  run_->Join("b0");
  ASSERT_TRUE(run_->timer.has_value());
  run_->Feed(TimerFired{.id = run_->timer->id});
  ASSERT_THAT(run_->EventsNamed("WaitingForData"), SizeIs(1));
  EXPECT_EQ(run_->EventsNamed("WaitingForData")[0].message,
            "no device that has the training data is here: local-0 is waited for, without a limit");
  EXPECT_FALSE(run_->timer.has_value());
  run_->Join("local-0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
}

TEST_F(DataRun, AnExecutorLostBeforeTheEventHasTheWholeTimeToReturn) {
  RunOptions options = Options({"a0", "b0", "c0"});
  options.data_devices = {"a0"};
  run_.emplace(std::move(options), Names{"a0", "b0", "c0"});
  run_->Join("b0");
  run_->Join("c0");
  Lose("c0");
  run_->Feed(TimerFired{.id = run_->timer->id});
  EXPECT_THAT(run_->EventsNamed("WaitingForData"), IsEmpty());
  ASSERT_EQ(state().phase(), Phase::kGathering);
  EXPECT_EQ(run_->timer->seconds, 120);
}

TEST_F(DataRun, WhereNoMoreAreWaitedForTheDataStillAre) {
  RunOptions options = Options({"a0", "b0", "c0"});
  options.data_devices = {"a0"};
  run_.emplace(std::move(options), Names{"a0", "b0", "c0"});
  run_->Join("b0");
  run_->Feed(JoinTimeout{});
  ASSERT_EQ(state().phase(), Phase::kGathering) << "b0 has measured itself meanwhile";
  run_->Feed(TimerFired{.id = run_->timer->id});
  EXPECT_THAT(run_->EventsNamed("WaitingForData"), SizeIs(1));
  EXPECT_EQ(run_->timer->seconds, 110);
  run_->Join("a0");
  EXPECT_EQ(state().phase(), Phase::kRunning);
  EXPECT_THAT(devices(), ElementsAre("a0", "b0"));
}

TEST_F(DataRun, WhereTheyDoNotComeTheRunEndsInsteadOfWaitingForEver) {
  RunOptions options = Options({"a0", "b0"});
  options.data_devices = {"a0"};
  run_.emplace(std::move(options), Names{"a0", "b0"});
  run_->Join("b0");
  run_->Feed(JoinTimeout{});
  for (int i = 0; i < 2; ++i) run_->Feed(TimerFired{.id = run_->timer->id});
  EXPECT_EQ(state().phase(), Phase::kFailed);
  EXPECT_EQ(Failure(), "no device that has the training data has joined: a0 was waited for");
}

TEST_F(DataRun, WhereAllHaveTheDataNoExecutorIsNamed) {
  Begin({"a0", "b0"}, {});
  for (const RequestPlan& ask : Of<RequestPlan>(run_->all)) EXPECT_THAT(ask.data_device, IsEmpty());
  Lose("a0");
  EXPECT_THAT(devices(), ElementsAre("b0"));
}

}  // namespace
}  // namespace fusionllm::broker
