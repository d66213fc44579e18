// How attempts end, and what follows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/lifecycle/testing/decide_fixture.h"

namespace fusionllm::op::lifecycle {
namespace {

using testing::DecideTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kStart;

TEST_F(DecideTest, ABrokerWhoseExecutorsNeverCameEndsForTheirReason) {
  AddRunning();
  seen_.persisted.was_ready = false;
  FailBroker(1);
  pods()[0].message = "executors did not join: paris-0, paris-1";
  pods()[1].ready = false;
  pods()[1].reason = kKilledForMemory;
  pods()[2].ready = false;
  pods()[2].exit_code = 5;  // asked to end by the broker
  pods()[2].reason = "Error";
  const Decision decision = Decide(seen_);
  EXPECT_THAT(Find(decision, "Restarting")->message,
              HasSubstr("did not join: paris-0, paris-1; train-paris-0-r0 in paris: OOMKilled. Raise resources.limits.memory"));
  seen_.persisted.was_ready = true;
  EXPECT_THAT(Find(Decide(seen_), "Restarting")->message, ::testing::Not(HasSubstr("OOMKilled"))) << "they had come";
}

TEST_F(DecideTest, AFailedBrokerRestartsTheJobOnceTheOldPodsAreGone) {
  AddRunning();
  FailBroker(1);
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRestarting);
  EXPECT_EQ(decision.persisted.attempt, 1);
  EXPECT_EQ(decision.persisted.restarts, 1);
  EXPECT_EQ(decision.persisted.counted_restarts, 1);
  EXPECT_EQ(decision.remove.size(), 3);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());

  seen_.persisted = decision.persisted;
  pods().erase(pods().begin(), pods().begin() + 2);
  decision = Decide(seen_);
  EXPECT_THAT(decision.create, IsEmpty()) << "one of the attempt before is left";
  EXPECT_EQ(decision.persisted.attempt, 1) << "counted once";

  pods().clear();
  decision = Decide(seen_);
  EXPECT_TRUE(decision.create_broker);
  EXPECT_EQ(decision.create, seen_.slots);
  EXPECT_EQ(decision.state, JobState::kStarting);
}

TEST_F(DecideTest, AJobIsRestartingFromTheFailureUntilItsNextAttemptMakesSteps) {
  AddRunning();
  FailBroker(1);
  const Decision failed = Decide(seen_);
  EXPECT_EQ(failed.restart, RestartCause::kBrokerFailed);
  EXPECT_EQ(Reason(failed, "Restarting"), "BrokerFailed");
  seen_.persisted = failed.persisted;
  seen_.persisted.restarting_since = kStart;
  pods().clear();
  AddBroker(PodPhase::kRunning, 1);
  for (const int index : {0, 1}) AddExecutor(index, PodPhase::kRunning, true, 1);
  const Decision ready = Decide(seen_);
  EXPECT_EQ(ready.state, JobState::kRunning);
  EXPECT_EQ(Reason(ready, "Restarting"), "none") << "it stays as it is";
  EXPECT_FALSE(ready.progress_resumed || ready.restart.has_value());
  seen_.made_progress = true;
  const Decision steps = Decide(seen_);
  EXPECT_TRUE(steps.progress_resumed);
  EXPECT_EQ(Reason(steps, "Restarting"), "!Progressing");
  seen_.persisted.restarting_since.reset();
  EXPECT_FALSE(Decide(seen_).progress_resumed) << "once";
}

TEST_F(DecideTest, AJobThatStartsAgainNoMoreIsNotRestarting) {
  AddRunning();
  seen_.persisted.restarting_since = kStart;
  FailBroker(2);
  const Decision failed = Decide(seen_);
  EXPECT_EQ(Reason(failed, "Restarting"), "!InvalidInput");
  EXPECT_FALSE(failed.restart.has_value());
  pods().clear();
  spec().suspend = true;
  EXPECT_EQ(Reason(Decide(seen_), "Restarting"), "!Suspended");
}

TEST_F(DecideTest, ReportsReasonOfRestart) {
  AddRunning();
  pods()[1].phase = PodPhase::kFailed;
  pods()[1].exit_code = 137;
  spec().failure_policy.rules = {{.name = "oom", .action = job::FailureAction::kRestartJob, .on_exit_codes = {137}}};
  EXPECT_EQ(Decide(seen_).restart, RestartCause::kExecutorFailed);
  pods().erase(pods().begin());
  EXPECT_EQ(Decide(seen_).restart, RestartCause::kBrokerLost);
}

// A drain, or a hand that deletes its pod, between its end and the first look at it.
TEST_F(DecideTest, ABrokerThatWasDoneBeforeItsPodWentHasDoneTheJob) {
  AddRunning();
  pods().erase(pods().begin());
  seen_.final_report = Progress{.step = 100, .steps = 100, .exit_code = 0};
  const Decision done = Decide(seen_);
  EXPECT_EQ(done.state, JobState::kComplete);
  EXPECT_FALSE(done.restart.has_value());
  seen_.final_report->exit_code = 130;
  EXPECT_EQ(Decide(seen_).restart, RestartCause::kBrokerLost) << "it was interrupted";
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1) << "by a hand";
  seen_.final_report.reset();
  EXPECT_EQ(Decide(seen_).restart, RestartCause::kBrokerLost) << "it has left no word";
}

TEST_F(DecideTest, ADrainedBrokerThatIsGoneUnseenDoesNotCountWhereItEndedInOrder) {
  AddRunning();
  pods().erase(pods().begin());
  seen_.final_report = Progress{.step = 40, .steps = 100, .exit_code = 130};
  seen_.left_disruption = "EvictionByEvictionAPI";
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.restart, RestartCause::kBrokerFailed);
  EXPECT_EQ(decision.persisted.restarts, 1);
  EXPECT_EQ(decision.persisted.counted_restarts, 0);
  EXPECT_EQ(Find(decision, "Restarting")->message, "the broker ended with exit code 130 (EvictionByEvictionAPI)");

  spec().failure_policy.rules = {{.name = "drains", .action = job::FailureAction::kRestartJob, .on_reasons = {"EvictionByEvictionAPI"}}};
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1) << "by a rule";
  spec().failure_policy.rules.clear();

  seen_.final_report->exit_code = 1;
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1) << "what it failed of would happen again";
  seen_.final_report->exit_code.reset();
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1) << "it did not say that it had ended";
}

// Not admitted by its node, say: it would be made and refused many times a second.
TEST_F(DecideTest, AnExecutorThatFailsAtOnceIsReplacedAfterAPause) {
  AddRunning();
  PodView& executor = pods().back();
  executor.phase = PodPhase::kFailed;
  executor.ready = false;
  executor.reason = "OutOfcpu";
  executor.message = "Node didn't have enough resource: cpu";
  executor.created_at = kStart;
  seen_.now = kStart + absl::Seconds(1);
  const Decision waits = Decide(seen_);
  EXPECT_THAT(Removed(waits), IsEmpty());
  EXPECT_EQ(waits.requeue_after, absl::Seconds(4));
  EXPECT_THAT(Find(waits, "Ready")->message, HasSubstr("OutOfcpu: Node didn't have enough resource: cpu"));
  seen_.now = kStart + absl::Seconds(5);
  EXPECT_THAT(Removed(Decide(seen_)), ElementsAre(executor.name));
  executor.created_at = seen_.now + absl::Minutes(1);
  EXPECT_THAT(Removed(Decide(seen_)), ElementsAre(executor.name)) << "by a clock that is ahead: nobody waits for that";
  executor.created_at = absl::InfinitePast();
  EXPECT_THAT(Removed(Decide(seen_)), ElementsAre(executor.name)) << "nobody knows when";
}

TEST_F(DecideTest, RestartsAreBounded) {
  AddRunning();
  FailBroker(1);
  seen_.persisted.attempt = 0;
  seen_.persisted.counted_restarts = spec().failure_policy.max_restarts;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kFailed);
  EXPECT_EQ(Reason(decision, "Failed"), "BackoffLimitExceeded");
  EXPECT_TRUE(decision.persisted.failed);
}

TEST_F(DecideTest, WhatWouldEndTheSameIsNotTriedAgain) {
  AddRunning();
  FailBroker(2);
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "InvalidInput");
  FailBroker(3);
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "PlacementFailed");
}

TEST_F(DecideTest, RulesDecideBeforeDefaults) {
  AddRunning();
  FailBroker(1, "OOMKilled");
  spec().failure_policy.rules = {{.name = "oom", .action = job::FailureAction::kFailJob, .on_reasons = {"OOMKilled"}}};
  Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Failed"), "FailurePolicy");
  EXPECT_THAT(Find(decision, "Failed")->message, HasSubstr("rule oom"));

  spec().failure_policy.rules = {{.name = "spot", .action = job::FailureAction::kRestartJobAndIgnoreMaxRestarts, .on_exit_codes = {1}}};
  seen_.persisted.counted_restarts = spec().failure_policy.max_restarts;
  decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRestarting);
  EXPECT_EQ(decision.persisted.counted_restarts, spec().failure_policy.max_restarts);
}

TEST_F(DecideTest, AnExecutorMayRestartTheJobWhereARuleSaysSo) {
  AddRunning();
  pods()[1].phase = PodPhase::kFailed;
  pods()[1].exit_code = 137;
  pods().pop_back();  // the other one is missing: it must not be made in the attempt to come before the old pods are gone
  spec().failure_policy.rules = {{.name = "all", .action = job::FailureAction::kRestartJob, .on_exit_codes = {137}}};
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRestarting);
  EXPECT_EQ(decision.persisted.attempt, 1);
  EXPECT_THAT(decision.create, IsEmpty());
}

TEST_F(DecideTest, AnExecutorThatIsReplacedAloneCountsForNothing) {
  AddRunning();
  seen_.persisted.counted_restarts = spec().failure_policy.max_restarts;
  pods()[1].phase = PodPhase::kFailed;
  for (const bool by_rule : {false, true}) {
    if (by_rule) spec().failure_policy.rules = {{.name = "all", .action = job::FailureAction::kRestartExecutor}};
    const Decision decision = Decide(seen_);
    EXPECT_THAT(Removed(decision), ::testing::ElementsAre("train-paris-0-r0"));
    EXPECT_EQ(decision.state, JobState::kRunning) << "though no restart is left";
    EXPECT_EQ(decision.persisted.restarts, 0);
    EXPECT_EQ(decision.persisted.counted_restarts, seen_.persisted.counted_restarts);
  }
}

TEST_F(DecideTest, AnExecutorWhoseFailureIsIgnoredIsNotReplaced) {
  AddRunning();
  spec().failure_policy.rules = {{.name = "never-mind", .action = job::FailureAction::kIgnore}};
  pods()[1].phase = PodPhase::kFailed;
  const Decision decision = Decide(seen_);
  EXPECT_THAT(decision.remove, IsEmpty());
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_EQ(decision.persisted.attempt, 0);
  EXPECT_EQ(decision.persisted.counted_restarts, 0);
}

TEST_F(DecideTest, WhatIsSaidOfExecutorsAloneRestartsTheJobOfABrokerAndCounts) {
  AddRunning();
  FailBroker(1);
  for (const job::FailureAction action :
       {job::FailureAction::kIgnore, job::FailureAction::kRestartExecutor, job::FailureAction::kReplaceCluster}) {
    spec().failure_policy.rules = {{.name = "all", .action = action}};
    seen_.persisted.counted_restarts = 0;
    const Decision decision = Decide(seen_);
    EXPECT_EQ(decision.persisted.attempt, 1);
    EXPECT_EQ(decision.persisted.counted_restarts, 1);
    EXPECT_THAT(decision.persisted.avoided, IsEmpty());
    seen_.persisted.counted_restarts = spec().failure_policy.max_restarts;
    EXPECT_EQ(Reason(Decide(seen_), "Failed"), "BackoffLimitExceeded") << "it does not go on without end";
  }
}

TEST_F(DecideTest, ABrokerThatIsGoneAfterItRanCountsAsARestart) {
  AddRunning();
  pods().erase(pods().begin());
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 1);
  EXPECT_EQ(decision.persisted.counted_restarts, 1);
  EXPECT_EQ(Removed(decision).size(), 2);
}

TEST_F(DecideTest, AStatusThatWasLostDoesNotEndThePodsOfALaterAttempt) {
  AddRunning();
  for (PodView& pod : pods()) pod.attempt = 3;
  seen_.persisted = {};
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 3);
  EXPECT_THAT(decision.remove, IsEmpty());
  EXPECT_EQ(decision.state, JobState::kRunning);
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
