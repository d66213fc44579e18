#include "lib/broker/run_state.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/drill.h"

namespace fusionllm::broker {
namespace {

using testing::Drill;
using ::testing::HasSubstr;
using testing::Of;
using testing::Options;
using testing::Reasons;

template <typename T>
bool Is(const Action& action) {
  return std::holds_alternative<T>(action);
}

TEST(RunStateTest, WithoutNamesARunBeginsWhenEnoughHaveJoined) {
  Drill drill({.min_executors = 2, .total_steps = 100}, {"a", "b"});
  drill.Join("a");
  EXPECT_EQ(drill.state.phase(), Phase::kGathering);
  for (const Expect& expect : Of<Expect>(drill.all)) EXPECT_EQ(expect.id, 0u) << "nobody hurries people who start executors by hand";
  drill.Join("b");
  EXPECT_NE(drill.state.phase(), Phase::kGathering);
}

TEST(RunStateTest, LinesBetweenDevicesAreMeasuredBesideTheLinksOfTheirSites) {
  RunOptions options = Options({"a0", "a1", "b0", "b1"});
  // One line of a0 and b0 both ways; one from a1 to site b.
  options.lines = {{{"a0", "b0"}, "leased"}, {{"b0", "a0"}, "leased back"}, {{"a1", "b0"}, "uplink"}, {{"a1", "b1"}, "uplink"}};
  Drill run(options, {"a0", "b0"});
  for (const char* name : {"a0", "a1", "b0", "b1"}) run.Join(name);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  std::set<std::string> probed;
  for (const AskProbe& probe : Of<AskProbe>(run.all)) probed.insert(probe.src + ">" + probe.dst);
  // "a0>b1", not the leased "a0>b0", speaks for the sites.
  EXPECT_THAT(probed, ::testing::UnorderedElementsAre("a0>a1", "b0>b1", "a0>b0", "b0>a0", "a1>b0", "a0>b1", "b0>a1"));
}

TEST(RunStateTest, WhatIsKnownOfLinesIsNotMeasuredAgain) {
  RunOptions options = Options({"a0", "b0"});
  options.lines = {{{"a0", "b0"}, "leased"}};
  options.known_profiles = {{"a0", "{}"}, {"b0", "{}"}};
  options.known_links = {{.src = "a0", .dst = "b0", .bytes_per_s = 1}};
  Drill run(options, {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  EXPECT_TRUE(Of<AskCalibrate>(run.all).empty());
  ASSERT_EQ(Of<AskProbe>(run.all).size(), 1u);
  EXPECT_EQ(Of<AskProbe>(run.all)[0].src, "b0");
}

TEST(RunStateTest, GathersMeasuresPlansAndStarts) {
  Drill run(Options({"a0", "a1", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("a1");
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Join("b0");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(Of<AskCalibrate>(run.all).size(), 3u);
  // Inside a, and between a and b both ways.
  EXPECT_EQ(Of<AskProbe>(run.all).size(), 3u);
  EXPECT_EQ(Of<SendStart>(run.all).size(), 2u);
  const auto joined = Of<Announce>(run.all);
  ASSERT_EQ(joined.size(), 3u);
  EXPECT_EQ(joined[0].stage, 0);
  EXPECT_EQ(joined[1].stage, std::nullopt);
  EXPECT_EQ(joined[2].stage, 1);
}

TEST(RunStateTest, WaitsWithoutLimitForMachinesThatItDoesNotKnow) {
  RunOptions options = Options({"a0"});
  options.min_executors = 3;
  Drill run(options, {"a0", "x", "y"});
  run.Join("x");
  run.Join("y");
  run.Join("z", /*spare=*/true);
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "the expected one is missing";
  run.Feed(Left{.name = "y", .incarnation = 1, .why = "gone"});
  run.Join("a0");
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "two and a spare";
  EXPECT_TRUE(Of<Expect>(run.all).empty());
  run.Join("y");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

TEST(RunStateTest, AnOpenRunThatHasLostAllForgetsItsTimers) {
  Drill run({.min_executors = 1, .total_steps = 100}, {"a"});
  run.ignores = Is<AskCalibrate>;
  run.Join("a");
  ASSERT_TRUE(run.timer.has_value());
  run.Feed(Left{.name = "a", .incarnation = 1, .why = "gone"});
  ASSERT_EQ(run.state.phase(), Phase::kGathering);
  run.Feed(Overdue{.id = run.timer->id});  // of the calibration
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "whoever starts executors by hand is not hurried";
}

TEST(RunStateTest, ALostDeviceThatAloneHasTheDataEndsTheRunAndSaysWhereItGoesOn) {
  for (const bool saved : {false, true}) {
    RunOptions options = Options({"a0", "b0", "s"});
    options.data_device = "a0";
    Drill run(options, {"a0", "b0"});
    for (const char* name : {"a0", "b0"}) run.Join(name);
    run.Join("s", /*spare=*/true);
    ASSERT_EQ(run.state.phase(), Phase::kRunning);
    run.Step(10);
    if (saved) run.SaveShards(10);
    run.Step(12);
    run.Feed(Left{.name = "a0", .incarnation = 1, .why = "gone"});
    EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("SpareActivated")));
    EXPECT_EQ(run.state.phase(), Phase::kFailed);
    const auto message = std::string(Of<Finish>(run.all).back().status.message());
    EXPECT_THAT(message, ::testing::HasSubstr("a0, which alone has the training data, was lost after step 12"));
    EXPECT_EQ(message.find("goes on after step 10, from step-10") != std::string::npos, saved) << message;
  }
}

TEST(RunStateTest, AnExecutorThatIsAwaitedByNameAndCannotTakePartEndsTheRunBeforeThePlan) {
  for (const bool asked : {true, false}) {
    Drill run(Options({"a0", "b0"}), {"a0", "b0"});
    run.ignores = Is<AskCalibrate>;
    run.Join("a0");
    if (asked) run.Join("b0");
    run.Feed(Calibrated{.name = "a0", .status = absl::InternalError("/data/train.bin: no such file")});
    EXPECT_EQ(run.state.phase(), Phase::kFailed);
    EXPECT_EQ(Of<Finish>(run.all).back().status.message(), "executor a0: /data/train.bin: no such file");
  }
}

TEST(RunStateTest, AnExecutorThatNobodyNeedsAndThatCannotTakePartEndsNoRun) {
  const Calibrated error{.name = "s0", .status = absl::InternalError("no such file")};
  for (const bool running : {true, false}) {
    Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
    if (!running) run.ignores = Is<AskCalibrate>;
    for (const char* name : {"a0", "b0"}) run.Join(name);
    run.Join("s0", /*spare=*/true);
    if (running) run.Step(1);
    run.Feed(error);
    EXPECT_EQ(run.state.phase(), running ? Phase::kRunning : Phase::kCalibrating);
    EXPECT_FALSE(run.state.members().contains("s0"));
    ASSERT_EQ(Of<Announce>(run.all).back().reason, "ExecutorLost");
    EXPECT_THAT(Of<Announce>(run.all).back().message, ::testing::AllOf(HasSubstr("s0"), HasSubstr("cannot take part: no such file")));
    run.Join("s0", /*spare=*/true);
    EXPECT_FALSE(run.state.members().contains("s0")) << "the same process dialled again";
    run.Join("s0", /*spare=*/true, 100, /*incarnation=*/2);
    EXPECT_TRUE(run.state.members().contains("s0")) << "started again, perhaps with what it missed";
  }
}

TEST(RunStateTest, ASpareThatCannotTakePartIsNotAwaited) {
  Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("s0", /*spare=*/true);
  run.Feed(Calibrated{.name = "s0", .status = absl::InternalError("no such file")});
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  for (const char* name : {"a0", "b0"}) run.Join(name);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

TEST(RunStateTest, OfUnknownMachinesAsManyMustBeAbleToTakePartAsTheJobNeeds) {
  Drill run({.min_executors = 2, .total_steps = 100}, {"a", "b", "c"});
  run.ignores = Is<AskCalibrate>;
  run.Join("a");
  run.Feed(Calibrated{.name = "a", .status = absl::InternalError("no AVX2")});
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "another one may come";
  for (const char* name : {"b", "c"}) run.Join(name);
  ASSERT_EQ(run.state.phase(), Phase::kCalibrating);
  run.Join("d");
  run.Feed(Calibrated{.name = "b", .status = absl::InternalError("no AVX2")});
  EXPECT_EQ(run.state.phase(), Phase::kCalibrating) << "c and d are enough";
  run.Feed(Calibrated{.name = "c", .status = absl::InternalError("no AVX2")});
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()), HasSubstr("executor c: no AVX2"));
}

TEST(RunStateTest, ARestartedStageThatCannotTakePartIsReplaced) {
  Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Join("s0", /*spare=*/true);
  run.ignores = Is<SendAssign>;
  run.Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  run.Feed(Ended{.epoch = 1, .name = "a0", .status = absl::CancelledError("told to")});
  ASSERT_EQ(run.state.phase(), Phase::kLoading);
  run.ignores = nullptr;
  run.Feed(Calibrated{.name = "b0", .status = absl::InternalError("no such file")});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST(RunStateTest, OneMeasuresAtATimeWhoeverIsLost) {
  Drill run(Options({"a0", "b0", "c0"}), {"a0", "b0"});
  run.ignores = [](const Action& action) { return Is<AskCalibrate>(action) || Is<AskProbe>(action); };
  for (const char* name : {"a0", "b0", "c0"}) run.Join(name);
  const auto asked = [&] {
    std::vector<std::string> names;
    for (const AskCalibrate& ask : Of<AskCalibrate>(run.all)) names.push_back(ask.name);
    return names;
  };
  const Calibrated a0{.name = "a0", .profile_document = "{}", .status = {}}, b0{.name = "b0", .profile_document = "{}", .status = {}};
  run.Feed(Left{.name = "c0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(asked(), std::vector<std::string>{"a0"}) << "a0 is still measuring";
  run.Join("c0", /*spare=*/false, 100, /*incarnation=*/2);
  run.Feed(b0);
  EXPECT_EQ(asked(), std::vector<std::string>{"a0"}) << "nobody has asked b0";
  run.Feed(a0);
  run.Feed(Left{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(asked(), (std::vector<std::string>{"a0", "b0", "c0"})) << "whoever was asked has gone";
  run.Feed(Calibrated{.name = "c0", .profile_document = "{}", .status = {}});
  ASSERT_EQ(Of<AskProbe>(run.all).size(), 1u);
  run.Join("b0", /*spare=*/false, 100, /*incarnation=*/2);
  run.Feed(Left{.name = "b0", .incarnation = 2, .why = "killed"});
  EXPECT_EQ(Of<AskProbe>(run.all).size(), 1u) << "a0 and c0 are still measuring";
  run.Feed(Left{.name = "c0", .incarnation = 2, .why = "killed"});
  EXPECT_EQ(run.state.phase(), Phase::kRunning) << "over a0 alone";
}

TEST(RunStateTest, OnlyTheAnswerToTheLastQuestionCounts) {
  for (const bool refused : {false, true}) {
    Drill run(Options({"a0", "b0", "c0"}), {"a0", "b0", "c0"});
    run.ignores = Is<AskPlan>;
    for (const char* name : {"a0", "b0", "c0"}) run.Join(name);
    run.Feed(Left{.name = "c0", .incarnation = 1, .why = "killed"});
    const auto asked = Of<AskPlan>(run.all);
    ASSERT_EQ(asked.size(), 2u);
    // Of three devices there would have been room for two.
    const PlanSummary plan{.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}};
    if (refused) run.Feed(PlanRefused{.id = asked[0].id, .reason = "InsufficientMemory", .message = "late"});
    if (!refused) run.Feed(Planned{.id = asked[0].id, .plan = plan});
    EXPECT_EQ(run.state.phase(), Phase::kPlanning);
    run.Feed(Planned{.id = asked[1].id, .plan = plan});
    EXPECT_EQ(run.state.phase(), Phase::kRunning);
    EXPECT_EQ(run.state.epoch(), 1u);
  }
}

TEST(RunStateTest, APlanOverDevicesThatNobodyAskedAboutIsAnError) {
  Drill run(Options({"a0"}), {"a0"});
  run.refine_plan = [](const AskPlan&, PlanSummary& plan) { plan.devices = {"x0"}; };
  run.Join("a0");
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()), HasSubstr("uses x0"));
}

TEST(RunStateTest, ReportsCountOnlyFromTheExecutorOfTheStage) {
  Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
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
    EXPECT_FALSE(run.state.Believes(shard));
    ignored(shard, "another stage's");
    shard.status = absl::ResourceExhaustedError("full");
    ignored(shard, "another stage's error");
  }
  ShardWritten late = run.Shard(101, 1);
  ignored(late, "a step that the run does not have");
  for (const char* name : {"s0", "nobody"}) {
    ignored(Ended{.epoch = 1, .name = name, .last_step = 100}, "no stage");
    ignored(Ended{.epoch = 1, .name = name, .status = absl::DataLossError("nan")}, "no stage");
  }
  const Ended beyond{.epoch = 1, .name = "a0", .last_step = 101};
  EXPECT_FALSE(run.state.Believes(beyond));
  ignored(beyond, "a step that the run does not have");
  run.SaveShards(100);
  run.Feed(Ended{.epoch = 1, .name = "a0", .last_step = 100});
  EXPECT_EQ(run.state.phase(), Phase::kRunning) << "b0 has not ended";
  run.Feed(Ended{.epoch = 1, .name = "b0", .last_step = 100});
  EXPECT_EQ(run.state.phase(), Phase::kDone);
}

TEST(RunStateTest, ARunOfNoStepsSavesItsInitialParameters) {
  RunOptions options = Options({"a0"});
  options.total_steps = 0;
  Drill run(options, {"a0"});
  run.Join("a0");
  run.SaveShards(0);
  run.EndAll(0);
  EXPECT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
}

TEST(RunStateTest, AStageThatReportsFilesOfAnotherFailsTheCheckpointAndNotTheRun) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Join(name);
  run.Step(10);
  for (const char* file : {"model-00001-of-00002.safetensors", "../../etc/passwd"}) {
    ShardWritten shard = run.Shard(10, 1);
    shard.files[0].name = file;
    EXPECT_FALSE(run.state.Believes(shard)) << file;
    run.Feed(shard);
  }
  run.Feed(run.Shard(10, 0));
  EXPECT_TRUE(Of<CommitCheckpoint>(run.all).empty());
  EXPECT_EQ(Of<AbandonCheckpoint>(run.all).size(), 1u);
  EXPECT_THAT(Of<Announce>(run.all).back().message, HasSubstr("stage 1 on b0 reported files that are not those of its shard"));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

TEST(RunStateTest, EndsWhenTheLastCheckpointIsWhole) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
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
  Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Join("s0", /*spare=*/true);
  run.Step(10);
  run.SaveShards(10);
  run.Step(11);
  const size_t before = run.all.size();
  run.Feed(Left{.name = "b0", .incarnation = 1, .why = "killed"});
  const std::vector<Action> after(run.all.begin() + before, run.all.end());
  EXPECT_THAT(Reasons(after), ::testing::ElementsAre("ExecutorLost", "SpareActivated", "Restored"));
  EXPECT_THAT(Of<Announce>(after)[0].message, HasSubstr("stage 1"));
  EXPECT_EQ(Of<Announce>(after)[0].step, 11);
  const auto assigned = Of<SendAssign>(after);
  ASSERT_EQ(assigned.size(), 2u);
  EXPECT_EQ(assigned[1].name, "s0");
  EXPECT_EQ(assigned[1].first_step, 11);
  EXPECT_EQ(assigned[1].restore_from, "step-10");
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  run.Step(11);  // replayed, printed again
  EXPECT_EQ(Of<PublishStep>(run.all).back().epoch, 2u);
}

TEST(RunStateTest, WithoutASpareItPlansOverTheRest) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Step(1);
  run.Feed(Left{.name = "a0", .incarnation = 1, .why = "killed"});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"b0"});
  EXPECT_THAT(Reasons(run.all), ::testing::Contains("Replanned"));
  EXPECT_EQ(Of<SendAssign>(run.all).back().first_step, 1) << "no checkpoint was there: start again";
}

TEST(RunStateTest, ASpareTooSmallForTheStageIsNotUsed) {
  Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Join("s0", true, /*memory=*/10);
  run.Feed(Left{.name = "b0", .incarnation = 1, .why = "killed"});
  EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("SpareActivated")));
  EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"a0"});
}

TEST(RunStateTest, WhomTheJobDoesNotWantTakesNoStageInNeed) {
  for (const bool by_name : {true, false}) {
    RunOptions options = Options({"a0", "b0", "s0"});
    if (by_name) options.excluded = {"s0"};
    if (!by_name) options.least_memory_bytes = 100;
    Drill run(options, {"a0", "b0"});
    run.Join("a0");
    run.Join("b0");
    run.Join("s0", /*spare=*/true, /*memory=*/99);
    const bool large_enough = run.state.plan().memory_bytes[1] <= 99;
    ASSERT_TRUE(large_enough) << "or the test shows nothing";
    run.Feed(Left{.name = "b0", .incarnation = 1, .why = "killed"});
    EXPECT_THAT(Reasons(run.all), ::testing::Not(::testing::Contains("SpareActivated")));
    EXPECT_EQ(run.state.plan().devices, std::vector<std::string>{"a0"});
  }
}

TEST(RunStateTest, AnErrorThatARetryCannotCureEndsTheRunNamingStageAndDevice) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Feed(Ended{.epoch = 1, .name = "b0", .last_step = 4, .status = absl::DataLossError("loss is nan at step 5")});
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()),
              ::testing::AllOf(HasSubstr("stage 1 on b0"), HasSubstr("nan at step 5")));
}

TEST(RunStateTest, AFullDiskInTheMiddleIsToldAndTrainingGoesOn) {
  Drill run(Options({"a0"}), {"a0"});
  run.Join("a0");
  run.Step(10);
  run.Feed(run.Shard(10, 0, absl::ResourceExhaustedError("no space left on /ckpt/x")));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_THAT(Of<Announce>(run.all).back().message, HasSubstr("/ckpt/x"));
  run.Feed(run.Shard(100, 0, absl::ResourceExhaustedError("no space left on /ckpt/x")));
  EXPECT_EQ(run.state.phase(), Phase::kFailed) << "the last checkpoint is what the user wanted";
}

TEST(RunStateTest, AStopEndsAfterACheckpointAndCountsAsInterrupted) {
  Drill run(Options({"a0"}), {"a0"});
  run.Join("a0");
  run.Step(7);
  run.Feed(StopAsked{});
  ASSERT_EQ(Of<SendStop>(run.all).size(), 1u);
  run.Step(8);
  run.SaveShards(8);
  run.EndAll(8);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run.all).back().interrupted);
}

TEST(RunStateTest, ARestartedBrokerGoesOnWithTheEpochItFinds) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {}, {}, 20);
  run.Feed(Joined{.member = {.name = "a0", .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Feed(Joined{.member = {.name = "b0", .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_TRUE(Of<SendAssign>(run.all).empty());
  run.Step(20);  // repeated by an executor that had no answer
  EXPECT_TRUE(Of<PublishStep>(run.all).empty());
  run.Step(21);
  EXPECT_EQ(Of<PublishStep>(run.all).size(), 1u);
}

TEST(RunStateTest, WhatReturningExecutorsRepeatCountsBeforeAllAreBack) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  ShardWritten shard{.epoch = 3, .step = 20, .stage = 1};
  shard.files = {{.name = "model-00002-of-00002.safetensors"}};
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {}, {}, 20, {shard});
  run.Feed(Joined{.member = {.name = "a0", .incarnation = 1}, .epoch = 3});
  run.Step(21);
  EXPECT_EQ(Of<PublishStep>(run.all).size(), 1u);
  run.Feed(run.Shard(20, 0));
  ASSERT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u) << "the other shard was reported to the broker before";
  EXPECT_EQ(Of<CommitCheckpoint>(run.all)[0].files.size(), 2u);
}

TEST(RunStateTest, ARestartedBrokerGivesExecutorsTheTimeToComeBackBeforeItPlansWithoutThem) {
  Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {{"a0", "{}"}, {"b0", "{}"}, {"s0", "{}"}}, {},
                  20);
  run.Feed(Joined{.member = {.name = "a0", .incarnation = 1}, .epoch = 0});  // its stage had not started, or has ended
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  EXPECT_TRUE(Of<SendAbort>(run.all).empty());
  run.Join("s0", /*spare=*/true);
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Feed(Overdue{.id = Of<Expect>(run.all).back().id});
  EXPECT_THAT(Reasons(run.all), ::testing::IsSupersetOf({"ExecutorLost", "SpareActivated"}));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST(RunStateTest, ARestartedBrokerDoesNotWaitForThoseThatAreKnownToBeGone) {
  RunOptions options = Options({"a0", "b0", "s0"});
  options.gone = {"b0"};
  Drill run(options, {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {{"a0", "{}"}, {"b0", "{}"}, {"s0", "{}"}}, {},
                  20);
  run.Feed(Joined{.member = {.name = "a0", .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "s0 may still be dialling";
  run.Join("s0", /*spare=*/true);
  EXPECT_THAT(Reasons(run.all), ::testing::IsSupersetOf({"ExecutorLost", "SpareActivated"}));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST(RunStateTest, ARestartedBrokerWhoseExecutorsAllDiedWithItDoesNotWaitForEver) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {}, {}, 20);
  run.Feed(Begun{});
  ASSERT_EQ(Of<Expect>(run.all).size(), 1u) << "nobody comes back whose news could start a timer";
  run.Feed(Overdue{.id = Of<Expect>(run.all).back().id});
  EXPECT_THAT(Reasons(run.all), ::testing::ElementsAre("ExecutorLost", "ExecutorLost"));
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "they may be started again";
  run.Feed(Overdue{.id = Of<Expect>(run.all).back().id});
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()), HasSubstr("did not join: a0, b0"));
}

TEST(RunStateTest, AStopEndsARestartedBrokerThatNobodyComesBackTo) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {}, {}, 20);
  run.Feed(Begun{});
  run.Feed(StopAsked{});
  ASSERT_EQ(Of<Expect>(run.all).size(), 2u);
  EXPECT_LT(Of<Expect>(run.all)[1].seconds, Of<Expect>(run.all)[0].seconds) << "a user waits for this";
  run.Feed(Overdue{.id = Of<Expect>(run.all).back().id});
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run.all).back().interrupted);
}

TEST(RunStateTest, AStopLetsExecutorsThatComeBackSaveWhatTheyHave) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}, .memory_bytes = {1, 1}}, {}, {}, 20);
  run.Feed(Begun{});
  run.Feed(StopAsked{});
  for (const char* name : {"a0", "b0"}) run.Feed(Joined{.member = {.name = name, .incarnation = 1}, .epoch = 3});
  ASSERT_EQ(Of<SendStop>(run.all).size(), 1u);
  run.SaveShards(22);
  run.EndAll(22);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u);
}

TEST(RunStateTest, AFailedCheckpointIsRemovedWhenItsLastStageHasReported) {
  Drill run(Options({"a0", "b0"}), {"a0", "b0"});
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
  Drill run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  run.Join("s0", true);
  run.Feed(Left{.name = "a0", .incarnation = 1, .why = "killed"});
  ASSERT_EQ(run.state.epoch(), 2u);
  const size_t before = run.all.size();
  run.Feed(StepDone{.epoch = 1, .name = "s0", .record = {.step = 50}});
  run.Feed(Ended{.epoch = 1, .name = "b0", .status = absl::InternalError("late")});
  run.Feed(Left{.name = "b0", .incarnation = 99, .why = "another life"});
  EXPECT_EQ(run.all.size(), before);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

}  // namespace
}  // namespace fusionllm::broker
