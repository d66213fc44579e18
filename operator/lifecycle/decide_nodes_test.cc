// What becomes of a job whose Pods are ended by others, or are on nodes that are gone.
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

TEST_F(DecideTest, ARuleMayBeAboutWhoEndsAnExecutor) {
  AddRunning();
  pods()[1].disruption = "PreemptionByScheduler";
  pods()[1].deleted_at = kStart + absl::Seconds(150);
  EXPECT_EQ(Decide(seen_).persisted.attempt, 0) << "no rule: it is waited for, and made anew";
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty());
  spec().failure_policy.rules = {
      {.name = "preempted", .action = job::FailureAction::kRestartJobAndIgnoreMaxRestarts, .on_reasons = {"PreemptionByScheduler"}}};
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRestarting);
  EXPECT_EQ(decision.restart, RestartCause::kExecutorFailed);
  EXPECT_EQ(decision.persisted.counted_restarts, 0);
  EXPECT_THAT(Find(decision, "Restarting")->message, HasSubstr("executor paris-0 is being ended (PreemptionByScheduler)"));
  pods()[1].disruption = "EvictionByEvictionAPI";
  EXPECT_EQ(Decide(seen_).persisted.attempt, 0) << "of another the rule does not speak";
  pods()[1].disruption.clear();
  EXPECT_EQ(Decide(seen_).persisted.attempt, 0) << "deleted by hand, say";
}

TEST_F(DecideTest, ANodeThatIsAwayIsNamedThoughItsPodIsBeingDeleted) {
  AddRunning();
  seen_.persisted.was_ready = true;
  pods()[1].ready = false;
  pods()[1].node = "paris-7";
  pods()[1].node_away_since = seen_.now;
  for (const bool deleted : {false, true}) {
    if (deleted) pods()[1].deleted_at = seen_.now;
    const Decision decision = Decide(seen_);
    EXPECT_EQ(Reason(decision, "Degraded"), "NodeNotReady") << deleted;
    EXPECT_THAT(Find(decision, "Degraded")->message, HasSubstr("its node paris-7 is not ready")) << deleted;
  }
  pods()[1].node_away_since.reset();
  EXPECT_THAT(Find(Decide(seen_), "Degraded")->message, ::testing::Not(HasSubstr("paris-7")));
}

TEST_F(DecideTest, DisruptionOfFinishedExecutorIsIgnored) {
  AddRunning();
  pods()[1].phase = PodPhase::kSucceeded;
  pods()[1].disruption = "EvictionByEvictionAPI";
  pods()[1].deleted_at = kStart + absl::Seconds(150);
  spec().failure_policy.rules = {{.name = "any", .action = job::FailureAction::kFailJob}};
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "none") << "the run is at its end";
  pods()[1].phase = PodPhase::kRunning;
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "FailurePolicy");
}

TEST_F(DecideTest, WhatHasBeenEvictedMayBeCalledByEitherName) {
  AddRunning();
  pods()[1].phase = PodPhase::kFailed;
  pods()[1].reason = "Evicted";
  pods()[1].disruption = "TerminationByKubelet";
  for (const char* reason : {"Evicted", "TerminationByKubelet"}) {
    spec().failure_policy.rules = {{.name = "r", .action = job::FailureAction::kFailJob, .on_reasons = {reason}}};
    EXPECT_THAT(Find(Decide(seen_), "Failed")->message, HasSubstr("(Evicted, TerminationByKubelet)"));
  }
  pods()[1].deleted_at = kStart + absl::Seconds(30);
  EXPECT_THAT(Find(Decide(seen_), "Failed")->message, HasSubstr("paris-0 failed (Evicted")) << "before it was deleted";
}

TEST_F(DecideTest, ARuleMayBeAboutWhoEndedTheBroker) {
  AddRunning();
  FailBroker(4);
  pods()[0].disruption = "DeletionByTaintManager";
  spec().failure_policy.rules = {
      {.name = "spot", .action = job::FailureAction::kRestartJobAndIgnoreMaxRestarts, .on_reasons = {"DeletionByTaintManager"}}};
  EXPECT_EQ(Decide(seen_).persisted.restarts, 1);
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 0);
}

TEST_F(DecideTest, OrderlyEvictionOfTheBrokerIsNoCountedRestart) {
  AddRunning();
  FailBroker(130);
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1) << "by whom nobody says";
  pods()[0].disruption = "EvictionByEvictionAPI";
  EXPECT_EQ(Decide(seen_).persisted.restarts, 1);
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 0);
  pods()[0].exit_code = 137;
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1) << "it was killed: steps are lost";
  pods()[0].exit_code = 130;
  spec().failure_policy.rules = {{.name = "drain", .action = job::FailureAction::kRestartJob, .on_reasons = {"EvictionByEvictionAPI"}}};
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1) << "a rule of the job's goes before";
}

TEST_F(DecideTest, ContainerThatExitedZeroInARunningPodIsNotDegraded) {
  AddRunning();
  seen_.persisted.was_ready = true;
  for (size_t i = 1; i < pods().size(); ++i) {
    pods()[i].ready = false;
    pods()[i].exit_code = 0;
    pods()[i].reason = "Completed";
    EXPECT_EQ(Reason(Decide(seen_), "Degraded"), "!NotDegraded") << i << " of " << pods().size() - 1 << " have ended";
  }
  pods()[1].exit_code = 1;
  pods()[1].reason = "Error";
  EXPECT_EQ(Reason(Decide(seen_), "Degraded"), "ExecutorsNotReady");
}

TEST_F(DecideTest, AnExecutorWhoseNodeIsGoneIsReplacedAfterABoundedTime) {
  AddRunning();
  pods()[2].node_away_since = kStart;
  pods()[2].ready = false;
  const absl::Duration force_delete_after = absl::Seconds(spec().force_delete_after_seconds);
  seen_.now = kStart + force_delete_after - absl::Seconds(1);
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty());
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(1));
  seen_.now = kStart + force_delete_after;
  Decision decision = Decide(seen_);
  ASSERT_THAT(Removed(decision), ElementsAre("train-paris-1-r0"));
  EXPECT_EQ(decision.remove[0].grace_seconds, 0) << "nobody is there to end it";
  EXPECT_THAT(decision.events, IsEmpty()) << "the broker tells of its executor, Degraded of the cause";
  spec().failure_policy.rules = {{.name = "gone", .action = job::FailureAction::kRestartJob, .on_reasons = {"NodeLost"}}};
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1);
  spec().failure_policy.rules.clear();
  spec().force_delete_after_seconds = 0;
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty()) << "0 means never";
}

TEST_F(DecideTest, APodThatHangsOnALostNodeIsNotGivenItsTimeOnceMore) {
  AddRunning();
  const absl::Duration force_delete_after = absl::Seconds(spec().force_delete_after_seconds);
  pods()[2].node_away_since = kStart;
  pods()[2].deleted_at = kStart + force_delete_after + absl::Seconds(150);  // by the taint, with its grace period
  seen_.now = kStart + force_delete_after;
  ASSERT_THAT(Removed(Decide(seen_)), ElementsAre("train-paris-1-r0"));
  EXPECT_EQ(Decide(seen_).remove[0].grace_seconds, 0);
}

TEST_F(DecideTest, AnExecutorThatIsDoneIsLeftThoughItsNodeIsGone) {
  AddRunning();
  pods()[2].phase = PodPhase::kSucceeded;
  pods()[2].node_away_since = kStart;
  seen_.now = kStart + absl::Hours(1);
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty());
}

TEST_F(DecideTest, ABrokerOnALostNodeIsLeftToKubernetesFirst) {
  AddRunning();
  pods()[0].node_away_since = kStart;
  const absl::Duration force_delete_after = absl::Seconds(spec().force_delete_after_seconds);
  seen_.now = kStart + force_delete_after;
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty()) << "its kubelet may be away alone, and the broker at work";
  EXPECT_EQ(Decide(seen_).persisted.attempt, 0);
  pods()[0].deleted_at = seen_.now + absl::Seconds(150);
  EXPECT_EQ(Decide(seen_).remove.size(), 0) << "deleted by one of us, who gives it its time";
  pods()[0].disruption = "DeletionByTaintManager";
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.restart, RestartCause::kBrokerFailed);
  EXPECT_EQ(decision.persisted.counted_restarts, 1);
  EXPECT_THAT(Find(decision, "Restarting")->message, HasSubstr("the broker is being ended (NodeLost, DeletionByTaintManager)"));
  ASSERT_THAT(Removed(decision), ElementsAre("train-broker-r0"));
  EXPECT_EQ(decision.remove[0].grace_seconds, 0);
  spec().failure_policy.rules = {
      {.name = "gone", .action = job::FailureAction::kRestartJobAndIgnoreMaxRestarts, .on_reasons = {"NodeLost"}}};
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 0);
}

TEST_F(DecideTest, ABrokerThatDoesNotEndIsDeletedByForceWhenItsTimeIsOver) {
  AddRunning();
  pods()[0].deleted_at = kStart;
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds) - absl::Seconds(1);
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty());
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(1));
  seen_.now += absl::Seconds(1);
  ASSERT_THAT(Removed(Decide(seen_)), ElementsAre("train-broker-r0"));
  EXPECT_EQ(Decide(seen_).remove[0].grace_seconds, 0);
  EXPECT_EQ(Decide(seen_).persisted.attempt, 0) << "counted when it is gone";
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
