// A broker that was started again and finds an epoch under way.
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

TEST(RunStateFailoverTest, ARestartedBrokerGoesOnWithTheEpochItFinds) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {}, {}, 20);
  run.Feed(ExecutorJoined{.executor = {.name = "a0", .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Feed(ExecutorJoined{.executor = {.name = "b0", .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_TRUE(Of<SendAssign>(run.all).empty());
  run.Step(20);  // repeated by an executor that had no answer
  EXPECT_TRUE(Of<PublishStep>(run.all).empty());
  run.Step(21);
  EXPECT_EQ(Of<PublishStep>(run.all).size(), 1u);
}

TEST(RunStateFailoverTest, WhatReturningExecutorsRepeatCountsBeforeAllAreBack) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  ShardWritten shard{.epoch = 3, .step = 20, .stage = 1};
  shard.files = {{.name = "model-00002-of-00002.safetensors"}};
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {}, {}, 20, {shard});
  run.Feed(ExecutorJoined{.executor = {.name = "a0", .incarnation = 1}, .epoch = 3});
  run.Step(21);
  EXPECT_EQ(Of<PublishStep>(run.all).size(), 1u);
  run.Feed(run.Shard(20, 0));
  ASSERT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u) << "the other shard was reported to the broker before";
  EXPECT_EQ(Of<CommitCheckpoint>(run.all)[0].files.size(), 2u);
}

// Noted by a broker that had them in a checkpoint and died before it could say so.
TEST(RunStateFailoverTest, DoesNotSaveCoveredShardsAgain) {
  RunOptions options = Options({"a0", "b0"});
  options.start_step = 20;
  options.start_checkpoint = "step-20";
  RunStateHarness run(options, {"a0", "b0"});
  std::vector<ShardWritten> shards;
  for (const int64_t step : {10, 20, 30}) {
    for (const int stage : {0, 1}) shards.push_back({.epoch = 3, .step = step, .stage = stage});
  }
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {}, {}, 30, shards);
  for (const char* name : {"a0", "b0"}) run.Feed(ExecutorJoined{.executor = {.name = name, .incarnation = 1}, .epoch = 3});
  ASSERT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u);
  EXPECT_EQ(Of<CommitCheckpoint>(run.all)[0].step, 30);
  EXPECT_THAT(Reasons(run.all), ::testing::ElementsAre("CheckpointSaved"));
}

TEST(RunStateFailoverTest, ARunWithoutACheckpointSavesWhatItFinds) {
  RunStateHarness run(Options({"a0"}), {"a0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0"}}, {}, {}, 0, {{.epoch = 3, .step = 0, .stage = 0}});
  run.Feed(ExecutorJoined{.executor = {.name = "a0", .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u) << "before the first step";
}

TEST(RunStateFailoverTest, WhatIsMissingOfAnEarlierCheckpointIsNotWaitedForBehindALaterOne) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  ShardWritten lost_its_other{.epoch = 3, .step = 50, .stage = 0}, last = {.epoch = 3, .step = 100, .stage = 0};
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {}, {}, 100, {lost_its_other, last}, {{"a0", 100}, {"b0", 100}});
  for (const char* name : {"a0", "b0"}) run.Feed(ExecutorJoined{.executor = {.name = name, .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(run.state.phase(), Phase::kFinishing);
  run.Feed(run.Shard(100, 1));
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  ASSERT_EQ(Of<AbandonCheckpoint>(run.all).size(), 1u);
  EXPECT_EQ(Of<AbandonCheckpoint>(run.all)[0].step, 50);
}

TEST(RunStateFailoverTest, ARestartedBrokerGivesExecutorsTheTimeToComeBackBeforeItPlansWithoutThem) {
  RunStateHarness run(Options({"a0", "b0", "s0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {{"a0", "{}"}, {"b0", "{}"}, {"s0", "{}"}}, {}, 20);
  run.Feed(ExecutorJoined{.executor = {.name = "a0", .incarnation = 1}, .epoch = 0});  // its stage had not started, or has ended
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  EXPECT_TRUE(Of<SendAbort>(run.all).empty());
  run.Join("s0", /*spare=*/true);
  EXPECT_EQ(run.state.phase(), Phase::kGathering);
  run.Feed(TimerFired{.id = Of<StartTimer>(run.all).back().id});
  EXPECT_THAT(Reasons(run.all), ::testing::IsSupersetOf({"ExecutorLost", "SpareActivated"}));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST(RunStateFailoverTest, ARestartedBrokerDoesNotWaitForThoseThatAreKnownToBeGone) {
  RunOptions options = Options({"a0", "b0", "s0"});
  options.lost_executors = {"b0"};
  RunStateHarness run(options, {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {{"a0", "{}"}, {"b0", "{}"}, {"s0", "{}"}}, {}, 20);
  run.Feed(ExecutorJoined{.executor = {.name = "a0", .incarnation = 1}, .epoch = 3});
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "s0 may still be dialling";
  run.Join("s0", /*spare=*/true);
  EXPECT_THAT(Reasons(run.all), ::testing::IsSupersetOf({"ExecutorLost", "SpareActivated"}));
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.plan().devices, (std::vector<std::string>{"a0", "s0"}));
}

TEST(RunStateFailoverTest, ARestartedBrokerWhoseExecutorsAllDiedWithItDoesNotWaitForEver) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {}, {}, 20);
  run.Feed(Started{});
  ASSERT_EQ(Of<StartTimer>(run.all).size(), 1u) << "nobody comes back whose news could start a timer";
  run.Feed(TimerFired{.id = Of<StartTimer>(run.all).back().id});
  EXPECT_THAT(Reasons(run.all), ::testing::ElementsAre("ExecutorLost", "ExecutorLost", "Recovering"));
  EXPECT_EQ(run.state.phase(), Phase::kGathering) << "they may be started again";
  run.Feed(TimerFired{.id = Of<StartTimer>(run.all).back().id});
  EXPECT_EQ(run.state.phase(), Phase::kFailed);
  EXPECT_THAT(std::string(Of<Finish>(run.all).back().status.message()), HasSubstr("did not join: a0, b0"));
}

TEST(RunStateFailoverTest, StopEndsRestartedBrokerWithoutExecutors) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {}, {}, 20);
  run.Feed(Started{});
  run.Feed(StopRequested{});
  ASSERT_EQ(Of<StartTimer>(run.all).size(), 2u);
  EXPECT_LT(Of<StartTimer>(run.all)[1].seconds, Of<StartTimer>(run.all)[0].seconds) << "a user waits for this";
  run.Feed(TimerFired{.id = Of<StartTimer>(run.all).back().id});
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_TRUE(Of<Finish>(run.all).back().interrupted);
}

TEST(RunStateFailoverTest, AStopLetsExecutorsThatComeBackSaveWhatTheyHave) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0"}}, {}, {}, 20);
  run.Feed(Started{});
  run.Feed(StopRequested{});
  for (const char* name : {"a0", "b0"}) run.Feed(ExecutorJoined{.executor = {.name = name, .incarnation = 1}, .epoch = 3});
  ASSERT_EQ(Of<SendStop>(run.all).size(), 1u);
  run.SaveShards(22);
  run.EndAll(22);
  EXPECT_EQ(run.state.phase(), Phase::kDone);
  EXPECT_EQ(Of<CommitCheckpoint>(run.all).size(), 1u);
}

TEST(RunStateFailoverTest, ABrokerWithoutItsJournalEndsWhatItFindsAndBeginsALaterEpoch) {
  RunOptions options = Options({"a0", "b0"});
  options.start_step = 20;
  options.start_checkpoint = "step-20";
  RunStateHarness run(options, {"a0", "b0"});
  for (const char* name : {"a0", "b0"}) run.Feed(ExecutorJoined{.executor = {.name = name, .incarnation = 1}, .epoch = 7});
  const auto aborts = Of<SendAbort>(run.all);
  ASSERT_EQ(aborts.size(), 2u);
  EXPECT_EQ(aborts[0].name, "a0");
  EXPECT_EQ(aborts[1].epoch, 7);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
  EXPECT_EQ(run.state.epoch(), 8) << "what the stages of epoch 7 still send is of no epoch of ours";
  run.Feed(StepDone{.epoch = 7, .name = "a0", .record = {.step = 30}});
  EXPECT_EQ(run.state.last_step(), 20);
  run.Step(21);
  EXPECT_EQ(run.state.last_step(), 21);
}

TEST(RunStateFailoverTest, AnExecutorOfAnUnknownEpochThatComesLateIsSparedItsNumber) {
  RunStateHarness run(Options({"a0", "b0"}), {"a0", "b0"});
  run.Join("a0");
  run.Join("b0");
  EXPECT_EQ(run.state.epoch(), 1);
  run.Feed(ExecutorJoined{.executor = {.name = "c0", .incarnation = 1}, .epoch = 7});
  ASSERT_EQ(Of<SendAbort>(run.all).size(), 1u);
  EXPECT_EQ(run.state.epoch(), 1) << "the epoch under way goes on";
  run.Feed(ExecutorLeft{.name = "b0", .incarnation = 1, .why = "test"});
  EXPECT_GT(run.state.epoch(), 7u);
  EXPECT_EQ(run.state.phase(), Phase::kRunning);
}

}  // namespace
}  // namespace fusionllm::broker
