// A run from its first step to its end, and what goes wrong between.
#include "lib/broker/run_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using testing::Of;
using testing::Options;
using testing::Reasons;
using testing::RunStateHarness;

TEST(RunStateTest, ALostDeviceThatAloneHasTheDataEndsTheRunAndSaysWhereItGoesOn) {
  for (const bool saved : {false, true}) {
    RunOptions options = Options({"a0", "b0", "s"});
    options.data_devices = {"a0"};
    RunStateHarness run(options, {"a0", "b0"});
    for (const char* name : {"a0", "b0"}) run.Join(name);
    run.Join("s", /*spare=*/true);
    ASSERT_EQ(run.state.phase(), Phase::kRunning);
    run.Step(10);
    if (saved) run.SaveShards(10);
    run.Step(12);
    run.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "gone"});
    EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("SpareActivated")));
    EXPECT_EQ(run.state.phase(), Phase::kFailed);
    const auto message = std::string(Of<Finish>(run.all).back().status.message());
    EXPECT_THAT(message, ::testing::HasSubstr("a0, which alone has the training data, was lost after step 12"));
    EXPECT_EQ(message.find("goes on after step 10, from step-10") != std::string::npos, saved) << message;
  }
}

TEST(RunStateTest, ReportsCountOnlyFromTheExecutorOfTheStage) {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Join("s0", /*spare=*/true);
  run.Step(10);
  const size_t before = run.all.size();
  const auto ignored = [&](const Event& event, const char* why) {
    run.Feed(event);
    EXPECT_EQ(run.all.size(), before) << why;
  };
  for (const char* name : {"b0", "s0", "nobody"})
    ignored(StepDone{.epoch = 1, .name = name, .record = {.step = 11}}, "not the first stage");
  ignored(StepDone{.epoch = 1, .name = "a0", .record = {.step = 101}}, "a step that the run does not have");
  for (const char* name : {"a0", "s0", "nobody"}) {
    ShardWritten shard = run.Shard(10, 1);
    shard.name = name;
    EXPECT_FALSE(run.state.IsCurrent(shard));
    ignored(shard, "another stage's");
    shard.status = absl::ResourceExhaustedError("full");
    ignored(shard, "another stage's error");
  }
  ShardWritten late = run.Shard(101, 1);
  ignored(late, "a step that the run does not have");
  for (const char* name : {"s0", "nobody"}) {
    ignored(StageEnded{.epoch = 1, .name = name, .last_step = 100}, "no stage");
    ignored(StageEnded{.epoch = 1, .name = name, .status = absl::DataLossError("nan")}, "no stage");
  }
  const StageEnded beyond{.epoch = 1, .name = "a0", .last_step = 101};
  EXPECT_FALSE(run.state.IsCurrent(beyond));
  ignored(beyond, "a step that the run does not have");
  run.SaveShards(100);
  run.Feed(StageEnded{.epoch = 1, .name = "a0", .last_step = 100});
  EXPECT_EQ(run.state.phase(), Phase::kRunning) << "b0 has not ended";
  run.Feed(StageEnded{.epoch = 1, .name = "b0", .last_step = 100});
  EXPECT_EQ(run.state.phase(), Phase::kDone);
}

TEST(RunStateTest, ARunOfNoStepsSavesItsInitialParameters) {
  RunOptions options = Options({"a0"});
  options.total_steps = 0;
  RunStateHarness run(options, {"a0"});
  run.Join("a0");
  run.SaveShards(0);
  run.EndAll(0);
  EXPECT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
}

TEST(RunStateTest, AStageThatReportsFilesOfAnotherFailsTheCheckpointAndNotTheRun) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Step(10);
  for (const char* file : {"model-00001-of-00002.safetensors", "../../etc/passwd"}) {
    ShardWritten shard = run.Shard(10, 1);
    shard.files[0].name = file;
    EXPECT_FALSE(run.state.IsCurrent(shard)) << file;
    run.Feed(shard);
  }
  run.Feed(run.Shard(10, 0));
  EXPECT_TRUE(Of<CommitCheckpoint>(run.all).empty());
  EXPECT_EQ(Of<AbandonCheckpoint>(run.all).size(), 1u);
  EXPECT_THAT(Of<EmitEvent>(run.all).back().message, HasSubstr("stage 1 on b0 reported files that are not those of its shard"));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

TEST(RunStateTest, WhereTheDataGoOnIsWhatTheFirstStageThatReadsThemSays) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Step(10);
  ShardWritten lie = run.Shard(10, 1);
  lie.samples_consumed = 7;
  run.Feed(lie);  // before the first stage's word
  run.Feed(run.Shard(10, 0));
  const auto commits = Of<CommitCheckpoint>(run.all);
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].samples_consumed, 40);
}

TEST(RunStateTest, EndsWhenTheLastCheckpointIsWhole) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Step(1);
  run.SaveShards(100);  // an executor reports its shard before its end
  run.EndAll(100);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  const auto commits = Of<CommitCheckpoint>(run.all);
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].files.size(), 2u);
  EXPECT_EQ(commits[0].samples_consumed, 400);
  EXPECT_TRUE(Of<Finish>(run.all).back().status.ok());
}

TEST(RunStateTest, ALostStageIsTakenByASpareFromTheLastCheckpoint) {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Join("s0", /*spare=*/true);
  run.Step(10);
  run.SaveShards(10);
  run.Step(11);
  const size_t before = run.all.size();
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  const std::vector<Action> after(run.all.begin() + before, run.all.end());
  EXPECT_THAT(Reasons(after), ::testing::ElementsAre("ExecutorLost", "Recovering", "SpareActivated", "Restored"));
  EXPECT_THAT(Of<EmitEvent>(after)[0].message, HasSubstr("stage 1"));
  EXPECT_EQ(Of<EmitEvent>(after)[0].step, 11);
  const auto assigned = Of<SendAssign>(after);
  ASSERT_EQ(assigned.size(), 2u);
  EXPECT_EQ(assigned[1].name, "s0");
  EXPECT_EQ(assigned[1].first_step, 11);
  EXPECT_EQ(assigned[1].restore_from, "step-10");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  run.Step(11);  // replayed, printed again
  EXPECT_EQ(Of<PublishStep>(run.all).back().epoch, 2u);
}

// Two stages, and a spare that is worth half of the device it stands in for.
RunStateHarness RunWithASlowSpare() {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.refine_plan = [](const RequestPlan& ask, RunPlan& plan) {
    const bool on_spare = plan.devices.back() == "s0";
    testing::SetStages(plan, {0.1, on_spare ? 0.4 : 0.2});
    plan.plan.predicted_step_seconds = on_spare ? 0.5 : 0.3;
    EXPECT_EQ(on_spare, ask.figures_only);
  };
  run.Join("a0");
  run.Join("b0");
  run.Join("s0", /*spare=*/true);
  run.Step(1);
  return run;
}

TEST(RunStateTest, ThePlanOfASpareHasTheFiguresOfTheSpare) {
  RunStateHarness run = RunWithASlowSpare();
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  const RequestPlan ask = Of<RequestPlan>(run.all).back();
  EXPECT_TRUE(ask.figures_only);
  EXPECT_EQ(ask.devices, (std::vector<std::string>{"a0", "s0"}));
  ASSERT_TRUE(ask.current_plan.has_value());
  EXPECT_EQ(ask.current_plan->devices, ask.devices);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().plan.predicted_step_seconds, 0.5);
  EXPECT_EQ(testing::BusySeconds(run.state.plan()), (std::vector<double>{0.1, 0.4}));
  EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("Replanned"))) << "the stages are what they were";
  EXPECT_THAT(Of<EmitEvent>(run.all).rbegin()[1].message, "s0 takes stage 1 from b0");
}

TEST(RunStateTest, SpareTakesOverWithoutNewPredictions) {
  const auto refuse = [](const RequestPlan& ask) -> Event {
    return PlanRefused{.id = ask.id, .reason = "SchedulerFailed", .message = "it is away"};
  };
  const auto others = [](const RequestPlan& ask) -> Event { return Planned{.id = ask.id, .plan = {.document = "{}", .devices = {"a0"}}}; };
  for (const std::function<Event(const RequestPlan&)>& answer : {std::function<Event(const RequestPlan&)>(refuse), {others}}) {
    RunStateHarness run = RunWithASlowSpare();
    run.ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
    run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
    ASSERT_EQ(run.state.phase(), Phase::kPlanning);
    run.Feed(answer(Of<RequestPlan>(run.all).back()));
    EXPECT_EQ(run.state.phase(), Phase::kRunning);
    EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
    EXPECT_EQ(testing::BusySeconds(run.state.plan()), (std::vector<double>{0.1, 0})) << "not b0's";
    EXPECT_THAT(Of<EmitEvent>(run.all).rbegin()[1].message, HasSubstr("from b0; the predicted times are still"));
  }
}

TEST(RunStateTest, EverySpareThatTakesAStageIsReported) {
  RunStateHarness run(Options({"a0", "b0", "s0", "s1"}), {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  for (const char* name : {"s0", "s1"}) run.Join(name, /*spare=*/true);
  run.ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  run.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "killed"});
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});  // while the first one's figures are asked for
  run.Feed(TimerFired{.id = run.timer->id});
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"s0", "s1"}));
  EXPECT_THAT(Reasons(run.all), ::testing::Contains("SpareActivated").Times(2));
}

TEST(RunStateTest, ReplansWhenSpareCannotRunTheStage) {
  RunStateHarness run = RunWithASlowSpare();
  run.refine_plan = {};
  run.ignores = [](const Action& action) {
    const auto* ask = std::get_if<RequestPlan>(&action);
    return ask != nullptr && ask->figures_only;
  };
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  ASSERT_EQ(run.state.phase(), Phase::kPlanning);
  run.Feed(PlanRefused{.id = Of<RequestPlan>(run.all).back().id, .reason = "InsufficientMemory", .message = "s0 has 4 MiB"});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"a0"});
  EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("SpareActivated")));
  EXPECT_THAT(Reasons(run.all), ::testing::Contains("Replanned"));
}

TEST(RunStateTest, ASchedulerThatNeverAnswersDoesNotKeepASpareFromItsStage) {
  RunStateHarness run = RunWithASlowSpare();
  run.ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_LE(run.timer->seconds, 10);
  run.Feed(TimerFired{.id = run.timer->id});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST(RunStateTest, ASpareLostBeforeItBeganIsReplaced) {
  RunStateHarness run = RunWithASlowSpare();
  run.Join("s1", /*spare=*/true);
  run.ignores = [](const Action& action) { return std::holds_alternative<RequestPlan>(action); };
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  run.Feed(ExecutorLeft{.name = "s0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s1"}));
  EXPECT_EQ(run.state.phase(), Phase::kRunning) << "s1 was never measured: it begins at once";
  EXPECT_THAT(Reasons(run.all), ::testing::Contains("SpareActivated").Times(1));
}

TEST(RunStateTest, WithoutASpareItPlansOverTheRest) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Step(1);
  run.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"b0"});
  EXPECT_THAT(Reasons(run.all), ::testing::Contains("Replanned"));
  EXPECT_EQ(Of<SendAssign>(run.all).back().first_step, 1) << "no checkpoint was there: start again";
}

TEST(RunStateTest, ASpareTooSmallForTheStageIsNotUsed) {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Join("s0", true, /*memory=*/10);
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("SpareActivated")));
  EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"a0"});
}

TEST(RunStateTest, WhomTheJobDoesNotWantTakesNoStageInNeed) {
  for (const bool by_name : {true, false}) {
    RunOptions options = Options({"a0", "b0", "s0"});
    if (by_name) options.excluded = {"s0"};
    if (!by_name) options.min_executor_memory_bytes = 100;
    RunStateHarness run(options, {"a0", "b0"});
    run.Join("a0");
    run.Join("b0");
    run.Join("s0", /*spare=*/true, /*memory=*/99);
    const bool large_enough = run.state.plan().MemoryBytesOf(1) <= 99;
    ASSERT_TRUE(large_enough) << "or the test shows nothing";
    run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "killed"});
    EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("SpareActivated")));
    EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"a0"});
  }
}

TEST(RunStateTest, AnErrorThatARetryCannotCureEndsTheRunNamingStageAndDevice) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Feed(StageEnded{.epoch = 1, .name = "b0", .last_step = 4, .status = absl::DataLossError("loss is nan at step 5")});
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()),
              ::testing::AllOf(HasSubstr("stage 1 on b0"), HasSubstr("nan at step 5")));
}

TEST(RunStateTest, AFullDiskInTheMiddleIsReportedAndTrainingGoesOn) {
  RunStateHarness run(Options({"a0"}), {"a0"});
  run.Join("a0");
  run.Step(10);
  run.Feed(run.Shard(10, 0, absl::ResourceExhaustedError("no space left on /ckpt/x")));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_THAT(Of<EmitEvent>(run.all).back().message, HasSubstr("/ckpt/x"));
  run.Feed(run.Shard(100, 0, absl::ResourceExhaustedError("no space left on /ckpt/x")));
  EXPECT_EQ(run.state.phase(), Phase::kRunning) << "its step has not been reported yet";
  run.Step(100);
  EXPECT_EQ(Of<PublishStep>(run.all).back().record.step, 100);
  EXPECT_EQ(run.state.phase(), Phase::kRunning) << "the evaluation after the last step needs no disk";
  run.EndAll(100);
  EXPECT_EQ(run.state.phase(), Phase::kFailed) << "the last checkpoint is what the user wanted";
}

TEST(RunStateTest, FailsWhenLastCheckpointCannotBeSaved) {
  const absl::Status full = absl::ResourceExhaustedError("no space left on /ckpt/x");
  for (const bool step_first : {true, false}) {
    RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
    run.Join("a0");
    run.Join("b0");
    if (step_first) run.Step(100);
    run.Feed(run.Shard(100, 1, full));
    if (!step_first) run.Step(100);
    EXPECT_EQ(Of<PublishStep>(run.all).back().record.step, 100);
    EXPECT_EQ(run.state.phase(), Phase::kRunning) << "the evaluation is still to come";
    run.EndAll(100);
    EXPECT_EQ(run.state.phase(), Phase::kFailed);
    EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()), HasSubstr("checkpoint of step 100 was not saved"));
  }
  RunStateHarness silent(Options({"a0"}), {"a0"});
  silent.Join("a0");
  silent.Feed(silent.Shard(100, 0, full));
  silent.EndAll(100);
  EXPECT_EQ(silent.state.phase(), Phase::kFailed) << "nobody is left who could tell the step";
}

TEST(RunStateTest, AStopEndsAfterACheckpointAndCountsAsInterrupted) {
  RunStateHarness run(Options({"a0"}), {"a0"});
  run.Join("a0");
  run.Step(7);
  run.Feed(StopRequested{});
  ASSERT_EQ(Of<SendStop>(run.all).size(), 1u);
  run.Step(8);
  run.SaveShards(8);
  run.EndAll(8);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run.all).back().interrupted);
}

TEST(RunStateTest, StageRestartDuringStopEndsTheRun) {
  RunStateHarness run(Options({"a0"}), {"a0"});
  run.Join("a0");
  run.Step(7);
  run.Feed(StopRequested{});
  run.Join("a0", /*spare=*/false, /*memory=*/100, /*incarnation=*/2);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_TRUE(std::holds_alternative<Finish>(run.all.back()));
}

TEST(RunStateTest, AStopDoesNotWaitForEverForAStepWithoutAnEnd) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Step(7);
  run.SaveShards(7);
  ASSERT_TRUE(run.timer.has_value());
  const StartTimer before = *run.timer;
  run.Feed(StopRequested{});
  ASSERT_TRUE(run.timer.has_value());
  EXPECT_EQ(run.timer->id, before.id) << "the patience that the step has left, and no more";
  // A stage that does not even stop when it is asked to is given up as well.
  run.ignores = [](const Action& action) { return std::holds_alternative<SendAbort>(action); };
  run.Feed(TimerFired{.id = run.timer->id});
  EXPECT_EQ(run.state.phase(), Phase::kDraining);
  ASSERT_TRUE(run.timer.has_value());
  run.Feed(TimerFired{.id = run.timer->id});
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run.all).back().interrupted);
  EXPECT_EQ(Of<SendAssign>(run.all).size(), 2u) << "nothing is begun again";
}

TEST(RunStateTest, AStopWhileStagesLoadMakesNoFurtherStep) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.ignores = [](const Action& action) { return std::holds_alternative<SendAssign>(action); };
  run.Join("a0");
  run.Join("b0");
  ASSERT_EQ(run.state.phase(), Phase::kLoading);
  run.Feed(StopRequested{});
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run.all).back().interrupted);
  EXPECT_EQ(Of<SendAbort>(run.all).size(), 2u);
  EXPECT_TRUE(Of<SendStart>(run.all).empty());
}

// base/exit_code.h tells by the code whose fault it is.
TEST(RunStateTest, WhatAStageFindsMissingIsTheUsersInputOnlyUntilTheRunHasBegun) {
  const absl::Status missing = absl::NotFoundError("checkpoint step-10 does not exist");
  {
    RunStateHarness run(Options({"a0"}), {"a0"});
    run.ignores = [](const Action& action) { return std::holds_alternative<SendAssign>(action); };
    run.Join("a0");
    run.Feed(StageReady{.epoch = 1, .name = "a0", .status = missing});
    EXPECT_EQ(Of<Finish>(run.all).back().status.code(), absl::StatusCode::kNotFound) << "what the job starts from";
  }
  for (const absl::Status& lost : {missing, absl::InvalidArgumentError("model.safetensors is cut off")}) {
    RunStateHarness run(Options({"a0", "s0"}), {"a0"});
    run.Join("a0");
    run.Join("s0", /*spare=*/true);
    run.Step(10);
    run.SaveShards(10);
    run.ignores = [](const Action& action) { return std::holds_alternative<SendAssign>(action); };
    run.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "killed"});
    ASSERT_EQ(run.state.phase(), Phase::kLoading);
    run.Feed(StageReady{.epoch = 2, .name = "s0", .status = lost});
    ASSERT_EQ(run.state.phase(), Phase::kFailed);
    EXPECT_TRUE(absl::IsDataLoss(Of<Finish>(run.all).back().status));
    EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()), HasSubstr(std::string(lost.message())));
  }
}

TEST(RunStateTest, DataThatTheModelCannotTakeIsTheUsersHoweverLateItIsMetAndDataThatIsGoneIsNot) {
  for (const auto& [error, code] : {std::pair(absl::InvalidArgumentError("token 300"), absl::StatusCode::kInvalidArgument),
                                    std::pair(absl::NotFoundError("cannot read text.txt"), absl::StatusCode::kDataLoss)}) {
    RunStateHarness run(Options({"a0"}), {"a0"});
    run.Join("a0");
    run.Step(17);
    run.Feed(StageEnded{.epoch = 1, .name = "a0", .last_step = 17, .status = error});
    ASSERT_EQ(run.state.phase(), Phase::kFailed);
    EXPECT_EQ(Of<Finish>(run.all).back().status.code(), code) << error;
  }
}

TEST(RunStateTest, ALastCheckpointWhoseFolderIsGoneIsAFailureOfTheRun) {
  RunStateHarness run(Options({"a0"}), {"a0"});
  run.ignores = [](const Action& action) { return std::holds_alternative<CommitCheckpoint>(action); };
  run.Join("a0");
  run.Step(100);
  run.SaveShards(100);
  run.Feed(CheckpointCommitted{.step = 100, .status = absl::NotFoundError("cannot create manifest.json")});
  run.EndAll(100);
  ASSERT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_TRUE(absl::IsDataLoss(Of<Finish>(run.all).back().status)) << Of<Finish>(run.all).back().status;
}

TEST(RunStateTest, AFailedCheckpointIsRemovedWhenItsLastStageHasReported) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Step(10);
  run.Feed(run.Shard(10, 0, absl::ResourceExhaustedError("full")));
  EXPECT_TRUE(Of<AbandonCheckpoint>(run.all).empty()) << "stage 1 may still be writing";
  run.Feed(run.Shard(10, 1));
  EXPECT_EQ(Of<AbandonCheckpoint>(run.all).size(), 1u);
  run.SaveShards(100);
  run.EndAll(100);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
}

TEST(RunStateTest, MessagesOfAnEarlierEpochAreIgnored) {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Join("s0", true);
  run.Feed(ExecutorLeft{.name = "a0", .incarnation = 1, .why = "killed"});
  ASSERT_EQ(run.state.epoch(), 2u);
  const size_t before = run.all.size();
  run.Feed(StepDone{.epoch = 1, .name = "s0", .record = {.step = 50}});
  run.Feed(StageEnded{.epoch = 1, .name = "b0", .status = absl::InternalError("late")});
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 99, .why = "another life"});
  EXPECT_EQ(run.all.size(), before);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

// The last is whole, so that what became of one before it changes nothing.
TEST(RunStateTest, WhatBecameOfAnEarlierCheckpointIsNoErrorBehindALaterOne) {
  for (const bool late_is_saved : {false, true}) {
    RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
    run.Join("a0");
    run.Join("b0");
    run.ignores = [](const Action& action) {
      const auto* commit = std::get_if<CommitCheckpoint>(&action);
      return commit != nullptr && commit->step == 90;
    };
    for (const int64_t step : {90, 100}) {
      run.Step(step);
      run.SaveShards(step);
    }
    run.EndAll(100);
    ASSERT_EQ(run.state.phase(), Phase::kFinishing);
    run.Feed(CheckpointCommitted{
        .step = 90, .path = "step-90", .status = late_is_saved ? absl::OkStatus() : absl::NotFoundError("cannot create manifest.json")});
    EXPECT_EQ(run.state.phase(), Phase::kDone);
    EXPECT_TRUE(Of<Finish>(run.all).back().status.ok()) << Of<Finish>(run.all).back().status;
  }
}

}  // namespace
}  // namespace fusionllm::broker
