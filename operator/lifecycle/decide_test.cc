// How a job begins, runs, is suspended and is late.
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

TEST_F(DecideTest, ANewJobGetsABrokerAndAnExecutorInEachSlot) {
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kStarting);
  EXPECT_TRUE(decision.prepare);
  EXPECT_TRUE(decision.create_broker);
  EXPECT_EQ(decision.create, seen_.slots);
  EXPECT_EQ(decision.persisted.started_at, kStart);
  EXPECT_EQ(Reason(decision, "Ready"), "!ExecutorsStarting");
}

TEST_F(DecideTest, AJobWhoseDataNoPodWouldHaveFailsBeforeAnyIsMade) {
  spec().data.path = {"../README.md"};
  const Decision decision = Decide(seen_);
  EXPECT_TRUE(decision.persisted.failed);
  EXPECT_EQ(Reason(decision, "Failed"), "InvalidInput");
  EXPECT_FALSE(decision.prepare || decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());
  AddRunning();
  EXPECT_EQ(Decide(seen_).state, JobState::kRunning) << "one that has begun knows better";
  pods().clear();
  seen_.persisted = {};
  spec().suspend = true;
  EXPECT_FALSE(Decide(seen_).persisted.failed) << "it may be mended before it is resumed";
}

TEST_F(DecideTest, WhatIsThereIsNotMadeAgain) {
  AddRunning();
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_THAT(decision.remove, IsEmpty());
  EXPECT_THAT(decision.events, IsEmpty());
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
}

TEST_F(DecideTest, AMissingExecutorIsMadeAgainAndTheOthersAreLeftAlone) {
  AddRunning();
  pods().pop_back();
  const Decision decision = Decide(seen_);
  EXPECT_THAT(decision.create, ElementsAre(manifests::ExecutorSlot{"paris", 1, false}));
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.remove, IsEmpty());
  EXPECT_EQ(decision.persisted.attempt, 0);
  EXPECT_EQ(Reason(decision, "Degraded"), "ExecutorsStarting");
}

TEST_F(DecideTest, DegradedWhilePlanUsesFewerExecutorsThanWanted) {
  AddRunning();
  EXPECT_EQ(Reason(Decide(seen_), "Degraded"), "!NotDegraded") << "brokers of earlier releases do not say";
  seen_.plan_executors = 1;
  seen_.wanted_executors = 2;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Degraded"), "PlannedWithFewer");
  EXPECT_THAT(Find(decision, "Degraded")->message, HasSubstr("1 of 2 executors"));
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
  seen_.plan_executors = 2;
  EXPECT_EQ(Reason(Decide(seen_), "Degraded"), "!NotDegraded");
  seen_.plan_executors = 1;
  pods().pop_back();
  EXPECT_EQ(Reason(Decide(seen_), "Degraded"), "ExecutorsStarting") << "why comes first";
}

TEST_F(DecideTest, AnExecutorThatIsStillEndingKeepsItsName) {
  AddRunning();
  pods()[2].deleted_at = kStart;
  const Decision decision = Decide(seen_);
  EXPECT_THAT(decision.create, IsEmpty()) << "two pods of one name cannot be";
  EXPECT_THAT(decision.remove, IsEmpty()) << "it is on its way";
}

TEST_F(DecideTest, APodOnALostNodeIsDeletedByForceWhenItsTimeIsOver) {
  AddRunning();
  pods()[2].deleted_at = kStart;
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds) - absl::Seconds(1);
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(1));
  seen_.now += absl::Seconds(1);
  const Decision decision = Decide(seen_);
  ASSERT_THAT(Removed(decision), ElementsAre("train-paris-1-r0"));
  EXPECT_EQ(decision.remove[0].grace_seconds, 0);
  spec().force_delete_after_seconds = 0;
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty()) << "0 means never";
}

TEST_F(DecideTest, AnEvictedExecutorIsReplacedAlone) {
  AddRunning();
  pods()[1].phase = PodPhase::kFailed;
  pods()[1].reason = "Evicted";
  const Decision decision = Decide(seen_);
  EXPECT_THAT(Removed(decision), ElementsAre("train-paris-0-r0"));
  EXPECT_EQ(decision.persisted.attempt, 0);
  EXPECT_THAT(Find(decision, "Degraded")->message, HasSubstr("train-paris-0-r0 in paris: Evicted"));
  EXPECT_THAT(decision.events, IsEmpty()) << "the condition tells it, and the broker";
}

TEST_F(DecideTest, WhatTheBrokerWaitsForIsInReadyBeforeTheFirstStepAndInDegradedAfterIt) {
  AddRunning();
  seen_.wait_reason = "ProbeFailed";
  seen_.wait = "paris-0 cannot reach paris-1";
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_EQ(Reason(decision, "Ready"), "!ProbeFailed");
  EXPECT_EQ(Find(decision, "Ready")->message, "2 of 2 executors are ready. paris-0 cannot reach paris-1");
  EXPECT_EQ(Reason(decision, "Degraded"), "ProbeFailed") << "or it would not be known that all were ready once";
  EXPECT_THAT(decision.events, IsEmpty());

  seen_.made_progress = true;
  seen_.wait_reason = "Recovering";
  decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
  EXPECT_EQ(Reason(decision, "Degraded"), "Recovering");
  EXPECT_THAT(Find(decision, "Degraded")->message, HasSubstr("paris-0 cannot reach paris-1"));

  pods()[1].ready = false;
  decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Ready"), "!ExecutorsStarting");
  EXPECT_EQ(Find(decision, "Ready")->message, "1 of 2 executors are ready. paris-0 cannot reach paris-1") << "its Pod does not say why";
  pods()[1].reason = "Unschedulable";
  EXPECT_THAT(Find(Decide(seen_), "Ready")->message, HasSubstr("1 of 2 executors are ready. train-paris-0-r0 in paris: Unschedulable"));

  pods()[1].ready = true;
  pods()[1].reason.clear();
  seen_.wait_reason.clear();
  decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
  EXPECT_EQ(Reason(decision, "Degraded"), "!NotDegraded");
}

TEST_F(DecideTest, ABrokerThatHasDoneItsWorkCompletesTheJobForEver) {
  AddRunning();
  pods()[0].phase = PodPhase::kSucceeded;
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kComplete);
  EXPECT_EQ(Reason(decision, "Complete"), "Completed");
  EXPECT_EQ(decision.persisted.completed_at, kStart);
  EXPECT_FALSE(decision.prepare);

  seen_.persisted = decision.persisted;
  pods()[0].phase = PodPhase::kFailed;  // of whatever comes later nothing counts
  decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kComplete);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_FALSE(decision.create_broker);
}

TEST_F(DecideTest, AJobThatWasSuspendedSaysThatItWasResumed) {
  EXPECT_EQ(Reason(Decide(seen_), "Suspended"), "!NotSuspended");
  seen_.persisted.was_suspended = true;
  EXPECT_EQ(Reason(Decide(seen_), "Suspended"), "!Resumed");
}

TEST_F(DecideTest, AJobThatIsCreatedSuspendedMakesNothing) {
  spec().suspend = true;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kSuspended);
  EXPECT_FALSE(decision.prepare);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_EQ(Reason(decision, "Suspended"), "Suspended");
}

TEST_F(DecideTest, SuspendingEndsTheBrokerBeforeTheExecutorsThatItsCheckpointNeeds) {
  AddRunning();
  spec().suspend = true;
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kSuspending);
  EXPECT_THAT(Removed(decision), ElementsAre("train-broker-r0"));

  pods().erase(pods().begin());
  decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kSuspending);
  EXPECT_EQ(Removed(decision).size(), 2);

  pods().clear();
  decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kSuspended);
  EXPECT_FALSE(decision.persisted.started_at.has_value()) << "the deadline counts from the resumption";

  seen_.persisted = decision.persisted;
  spec().suspend = false;
  decision = Decide(seen_);
  EXPECT_TRUE(decision.create_broker);
  EXPECT_EQ(decision.persisted.attempt, 1) << "it is placed anew";
  EXPECT_EQ(decision.persisted.restarts, 0) << "a resumption is no restart";
  EXPECT_EQ(decision.persisted.counted_restarts, 0);
}

TEST_F(DecideTest, ResumeWhileStoppingStartsNewAttempt) {
  AddRunning();
  seen_.persisted.was_suspended = seen_.persisted.suspending = true;
  for (const PodPhase phase : {PodPhase::kRunning, PodPhase::kSucceeded, PodPhase::kFailed}) {
    pods()[0].phase = phase;
    pods()[0].exit_code = phase == PodPhase::kRunning ? std::nullopt : std::optional(phase == PodPhase::kSucceeded ? 0 : 1);
    pods()[0].deleted_at = kStart + absl::Seconds(30);
    const Decision decision = Decide(seen_);
    EXPECT_FALSE(decision.persisted.complete || decision.persisted.failed);
    EXPECT_EQ(decision.persisted.attempt, 1);
    EXPECT_EQ(decision.persisted.restarts, 0) << "nothing has failed";
    EXPECT_EQ(decision.state, JobState::kRestarting);
    EXPECT_THAT(decision.create, IsEmpty()) << "what ends is waited for";
  }
}

TEST_F(DecideTest, DeadlinesAreCountedFromTimesOfTheStatus) {
  AddRunning();
  spec().active_deadline_seconds = 60;
  seen_.now = kStart + absl::Seconds(59);
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_EQ(decision.requeue_after, absl::Seconds(1));
  seen_.now = kStart + absl::Seconds(60);
  decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Failed"), "DeadlineExceeded");
  EXPECT_EQ(decision.persisted.completed_at, seen_.now);
}

TEST_F(DecideTest, AJobThatDoesNotGetReadyFailsWithWhatIsShort) {
  spec().pending_deadline_seconds = 30;
  seen_.slots.clear();
  seen_.placement_problem = "paris: 2 executors wanted, 1 fits";
  EXPECT_EQ(Reason(Decide(seen_), "Scheduled"), "!PlacementFailed");
  seen_.now = kStart + absl::Seconds(30);
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Failed"), "PendingDeadlineExceeded");
  EXPECT_THAT(Find(decision, "Failed")->message, HasSubstr("1 fits"));
}

TEST_F(DecideTest, AJobThatStartsAgainOrIsResumedHasAllItsTimeToGetReady) {
  spec().pending_deadline_seconds = 30;
  seen_.persisted.started_at = kStart;
  seen_.persisted.attempt = 1;
  seen_.now = kStart + absl::Hours(2);
  seen_.persisted.restarting_since = seen_.now - absl::Seconds(29);
  AddBroker(PodPhase::kRunning, 1);
  Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Failed"), "none") << "it ran for two hours";
  EXPECT_EQ(decision.requeue_after, absl::Seconds(1));
  seen_.now += absl::Seconds(1);
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "PendingDeadlineExceeded");
  seen_.persisted.unready_since = seen_.now - absl::Seconds(10);
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "none") << "it was ready in between, and has made no step";
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(20));
  seen_.persisted.unready_since = kStart;
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "PendingDeadlineExceeded") << "none was ready since it starts again";

  pods().clear();
  seen_.slots.clear();
  seen_.placement_problem = "paris: 2 executors wanted, 1 fits";
  seen_.persisted = {.was_suspended = true};
  decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Failed"), "none") << "it is resumed just now";
  EXPECT_EQ(decision.requeue_after, absl::Seconds(30));
  seen_.persisted = {.started_at = kStart, .was_suspended = true, .suspending = true};
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "none") << "before all had ended";
  seen_.persisted = {.was_suspended = true, .resumed_at = seen_.now - absl::Seconds(30)};
  EXPECT_EQ(Reason(Decide(seen_), "Failed"), "PendingDeadlineExceeded");
}

TEST_F(DecideTest, WhyAPodWaitsIsInTheCondition) {
  seen_.persisted.started_at = kStart;
  AddBroker(PodPhase::kRunning);
  PodView& pod = AddExecutor(0, PodPhase::kPending, false);
  pod.reason = "Unschedulable";
  pod.message = "0/1 nodes are available: 1 Insufficient memory.";
  AddExecutor(1, PodPhase::kRunning, true);
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Ready"), "!Unschedulable");
  EXPECT_THAT(Find(decision, "Ready")->message,
              HasSubstr("1 of 2 executors are ready. train-paris-0-r0 in paris: Unschedulable: 0/1 nodes"));
}

TEST_F(DecideTest, WhatHoldsUpTheBrokerIsInTheConditionWhetherItRunsYetOrNot) {
  for (const PodPhase phase : {PodPhase::kPending, PodPhase::kRunning}) {
    pods().clear();
    PodView& broker = AddBroker(phase);
    broker.reason = "CrashLoopBackOff";
    broker.message = "container scheduler: exit code 1, Error";
    AddExecutor(0, PodPhase::kRunning, false);
    AddExecutor(1, PodPhase::kRunning, false);
    const Decision decision = Decide(seen_);
    EXPECT_EQ(Reason(decision, "Ready"), "!BrokerNotReady");
    EXPECT_THAT(Find(decision, "Ready")->message,
                HasSubstr("train-broker-r0 on the hub: CrashLoopBackOff: container scheduler: exit code 1, Error"));
  }
  pods()[0].ready = true;
  EXPECT_EQ(Reason(Decide(seen_), "Ready"), "!ExecutorsStarting") << "that is over";
}

TEST_F(DecideTest, WhatPodsThatAreNotMadeYetWaitForIsInTheCondition) {
  seen_.slots[1] = {"tokyo", 0, false};
  seen_.clusters.push_back({.name = "tokyo", .waiting = "the load balancer of Service train-tokyo-0 in cluster tokyo has no address yet"});
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Ready"), "!WaitingForAddress");
  EXPECT_EQ(Find(decision, "Ready")->message,
            "0 of 2 executors are ready. Waiting: the load balancer of Service train-tokyo-0 in cluster tokyo has no address yet.");
  seen_.clusters[0].waiting = "the load balancer of Service train-broker in cluster paris has no address yet";
  EXPECT_THAT(Find(Decide(seen_), "Ready")->message, HasSubstr("train-broker")) << "it goes before the executors'";
  spec().pending_deadline_seconds = 30;
  seen_.now = kStart + absl::Seconds(30);
  EXPECT_THAT(Find(Decide(seen_), "Failed")->message, HasSubstr("train-broker"));
}

TEST_F(DecideTest, WhatAClusterWaitsForMattersOnlyWherePodsAreToBeMade) {
  AddRunning();
  seen_.clusters[0].waiting = "the load balancer of Service train-paris-0 has no address yet";
  seen_.clusters.push_back({.name = "tokyo", .waiting = "of an attempt that was placed there"});
  EXPECT_EQ(Reason(Decide(seen_), "Ready"), "AllExecutorsReady");
}

// An operator that is killed after it wrote the status, or before, decides the same again.
TEST_F(DecideTest, DecidingTwiceIsDecidingOnce) {
  AddRunning();
  FailBroker(1);
  Decision first = Decide(seen_);
  EXPECT_EQ(Decide(seen_).persisted.attempt, first.persisted.attempt);
  seen_.persisted = first.persisted;
  const Decision second = Decide(seen_);
  EXPECT_EQ(second.persisted.attempt, first.persisted.attempt);
  EXPECT_EQ(second.persisted.counted_restarts, first.persisted.counted_restarts);
  EXPECT_EQ(Removed(second), Removed(first));
}

TEST_F(DecideTest, AJobThatItsQueueEvictsEndsLikeASuspendedOneAndSaysWhy) {
  AddRunning();
  seen_.queue = QueueStatus{.holds = true, .reason = kEvictedByKueue, .message = "Evicted by Kueue (Preempted)."};
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kSuspending);
  EXPECT_THAT(Removed(decision), ElementsAre("train-broker-r0")) << "it saves a checkpoint, for which it needs the executors";
  EXPECT_EQ(Reason(decision, "Admitted"), "!EvictedByKueue");
  EXPECT_EQ(Reason(decision, "Suspended"), "!Suspending");
  pods().clear();
  decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kQueued);
  EXPECT_EQ(Reason(decision, "Suspended"), "EvictedByKueue");
  EXPECT_EQ(Reason(decision, "Ready"), "!EvictedByKueue");
  EXPECT_EQ(decision.persisted.attempt, 1);
  EXPECT_EQ(decision.persisted.restarts, 0);
  EXPECT_FALSE(decision.persisted.started_at.has_value()) << "the wait does not count towards its deadline";
}

TEST_F(DecideTest, AQueueThatIsMissingIsLookedForAndHoldsNoJobThatRuns) {
  seen_.queue = QueueStatus{.holds = true, .reason = kKueueNotInstalled, .message = "It is not there.", .requeue_after = absl::Seconds(30)};
  EXPECT_EQ(Decide(seen_).state, JobState::kQueued);
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(30));
  AddRunning();
  seen_.queue->holds = false;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_EQ(Reason(decision, "Admitted"), "!KueueNotInstalled");
}

TEST_F(DecideTest, TheWaitInAQueueIsNoWaitToBeReady) {
  spec().pending_deadline_seconds = 60;
  seen_.now = kStart + absl::Hours(1);
  seen_.queue = QueueStatus{.holds = true, .reason = kQueued, .message = "Queued."};
  EXPECT_FALSE(Decide(seen_).persisted.failed);
  seen_.persisted.was_suspended = true;
  seen_.queue = QueueStatus{.holds = false, .admitted = true, .reason = kAdmittedByKueue, .message = "Admitted."};
  EXPECT_FALSE(Decide(seen_).persisted.failed);
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
