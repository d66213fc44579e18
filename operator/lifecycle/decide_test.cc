#include "operator/lifecycle/decide.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace fusionllm::op {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

// A job of two executors in one cluster, and what there is of it.
class DecideTest : public ::testing::Test {
 protected:
  DecideTest() {
    seen_.identity = {.name = "train", .ns = "team", .uid = "u1", .origin = "hub"};
    seen_.now = seen_.created_at = kStart;
    seen_.finalizer = true;
    seen_.slots = {{"paris", 0, false}, {"paris", 1, false}};
    seen_.clusters = {{.name = "paris"}};
  }

  job::Spec& spec() { return seen_.job.spec; }
  std::vector<PodView>& pods() { return seen_.clusters[0].pods; }

  PodView& AddBroker(PodPhase phase, int64_t attempt = 0) {
    return pods().emplace_back(PodView{.name = BrokerPodName(seen_.identity, attempt),
                                       .uid = "b",
                                       .role = kBrokerRole,
                                       .cluster = "paris",
                                       .attempt = attempt,
                                       .phase = phase});
  }
  PodView& AddExecutor(int index, PodPhase phase, bool ready, int64_t attempt = 0) {
    return pods().emplace_back(PodView{.name = ExecutorPodName(seen_.identity, {"paris", index, false}, attempt),
                                       .uid = absl::StrCat("e", index),
                                       .role = kExecutorRole,
                                       .cluster = "paris",
                                       .index = index,
                                       .attempt = attempt,
                                       .phase = phase,
                                       .ready = ready});
  }
  void AddRunning() {
    seen_.clusters[0].anchor = true;
    seen_.memory.started_at = kStart;
    seen_.memory.was_ready = true;
    AddBroker(PodPhase::kRunning);
    AddExecutor(0, PodPhase::kRunning, true);
    AddExecutor(1, PodPhase::kRunning, true);
  }
  void FailBroker(int exit_code, const std::string& reason = "Error") {
    pods()[0].phase = PodPhase::kFailed;
    pods()[0].exit_code = exit_code;
    pods()[0].reason = reason;
  }

  static std::vector<std::string> Removed(const Decision& decision) {
    std::vector<std::string> names;
    for (const PodRemoval& removal : decision.remove) names.push_back(removal.name);
    return names;
  }
  static const ConditionWish* Find(const Decision& decision, const std::string& type) {
    const auto at =
        std::find_if(decision.conditions.begin(), decision.conditions.end(), [&](const auto& c) { return Name(c.type) == type; });
    return at == decision.conditions.end() ? nullptr : &*at;
  }
  static std::string Reason(const Decision& decision, const std::string& type) {
    const ConditionWish* condition = Find(decision, type);
    return condition == nullptr ? "none" : absl::StrCat(condition->status ? "" : "!", condition->reason);
  }

  Observation seen_;
};

TEST_F(DecideTest, ANewJobGetsABrokerAndAnExecutorInEachSlot) {
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kStarting);
  EXPECT_TRUE(decision.prepare);
  EXPECT_TRUE(decision.create_broker);
  EXPECT_EQ(decision.create, seen_.slots);
  EXPECT_EQ(decision.memory.started_at, kStart);
  EXPECT_EQ(Reason(decision, "Ready"), "!ExecutorsStarting");
}

TEST_F(DecideTest, WhatIsThereIsNotMadeAgain) {
  AddRunning();
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_THAT(decision.remove, IsEmpty());
  EXPECT_THAT(decision.notes, IsEmpty());
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
}

TEST_F(DecideTest, AMissingExecutorIsMadeAgainAndTheOthersAreLeftAlone) {
  AddRunning();
  pods().pop_back();
  const Decision decision = Decide(seen_);
  EXPECT_THAT(decision.create, ElementsAre(ExecutorSlot{"paris", 1, false}));
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.remove, IsEmpty());
  EXPECT_EQ(decision.memory.attempt, 0);
  EXPECT_EQ(Reason(decision, "Degraded"), "ExecutorsStarting");
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
  EXPECT_EQ(Decide(seen_).look_again, absl::Seconds(1));
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
  EXPECT_EQ(decision.memory.attempt, 0);
  ASSERT_EQ(decision.notes.size(), 1);
  EXPECT_EQ(decision.notes[0].reason, "ExecutorLost");
}

TEST_F(DecideTest, ABrokerThatHasDoneItsWorkCompletesTheJobForEver) {
  AddRunning();
  pods()[0].phase = PodPhase::kSucceeded;
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kComplete);
  EXPECT_EQ(Reason(decision, "Complete"), "Completed");
  EXPECT_EQ(decision.memory.completed_at, kStart);
  EXPECT_FALSE(decision.prepare);

  seen_.memory = decision.memory;
  pods()[0].phase = PodPhase::kFailed;  // of whatever comes later nothing counts
  decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kComplete);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_FALSE(decision.create_broker);
}

TEST_F(DecideTest, AFailedBrokerRestartsTheJobOnceTheOldPodsAreGone) {
  AddRunning();
  FailBroker(1);
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRestarting);
  EXPECT_EQ(decision.memory.attempt, 1);
  EXPECT_EQ(decision.memory.restarts, 1);
  EXPECT_EQ(decision.memory.counted_restarts, 1);
  EXPECT_EQ(decision.remove.size(), 3);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());

  seen_.memory = decision.memory;
  pods().erase(pods().begin(), pods().begin() + 2);
  decision = Decide(seen_);
  EXPECT_THAT(decision.create, IsEmpty()) << "one of the attempt before is left";
  EXPECT_EQ(decision.memory.attempt, 1) << "counted once";

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
  seen_.memory = failed.memory;
  seen_.memory.restarting_since = kStart;
  pods().clear();
  AddBroker(PodPhase::kRunning, 1);
  for (const int index : {0, 1}) AddExecutor(index, PodPhase::kRunning, true, 1);
  const Decision ready = Decide(seen_);
  EXPECT_EQ(ready.state, JobState::kRunning);
  EXPECT_EQ(Reason(ready, "Restarting"), "none") << "it stays as it is";
  EXPECT_FALSE(ready.steps_again || ready.restart.has_value());
  seen_.stepped = true;
  const Decision steps = Decide(seen_);
  EXPECT_TRUE(steps.steps_again);
  EXPECT_EQ(Reason(steps, "Restarting"), "!MakesSteps");
  seen_.memory.restarting_since.reset();
  EXPECT_FALSE(Decide(seen_).steps_again) << "once";
}

TEST_F(DecideTest, AJobThatStartsAgainNoMoreIsNotRestarting) {
  AddRunning();
  seen_.memory.restarting_since = kStart;
  FailBroker(2);
  const Decision failed = Decide(seen_);
  EXPECT_EQ(Reason(failed, "Restarting"), "!InvalidInput");
  EXPECT_FALSE(failed.restart.has_value());
  pods().clear();
  spec().suspend = true;
  EXPECT_EQ(Reason(Decide(seen_), "Restarting"), "!Suspended");
}

TEST_F(DecideTest, WhyAnAttemptEndedIsTold) {
  AddRunning();
  pods()[1].phase = PodPhase::kFailed;
  pods()[1].exit_code = 137;
  spec().failure_policy.rules = {{.name = "oom", .action = job::FailureAction::kRestartJob, .on_exit_codes = {137}}};
  EXPECT_EQ(Decide(seen_).restart, RestartCause::kExecutorFailed);
  pods().erase(pods().begin());
  EXPECT_EQ(Decide(seen_).restart, RestartCause::kBrokerLost);
}

TEST_F(DecideTest, AJobThatWasSuspendedSaysThatItWasResumed) {
  EXPECT_EQ(Reason(Decide(seen_), "Suspended"), "!NotSuspended");
  seen_.memory.was_suspended = true;
  EXPECT_EQ(Reason(Decide(seen_), "Suspended"), "!Resumed");
}

TEST_F(DecideTest, RestartsAreBounded) {
  AddRunning();
  FailBroker(1);
  seen_.memory.attempt = 0;
  seen_.memory.counted_restarts = spec().failure_policy.max_restarts;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kFailed);
  EXPECT_EQ(Reason(decision, "Failed"), "BackoffLimitExceeded");
  EXPECT_TRUE(decision.memory.failed);
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
  seen_.memory.counted_restarts = spec().failure_policy.max_restarts;
  decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRestarting);
  EXPECT_EQ(decision.memory.counted_restarts, spec().failure_policy.max_restarts);
}

TEST_F(DecideTest, AnExecutorMayRestartTheJobWhereARuleSaysSo) {
  AddRunning();
  pods()[1].phase = PodPhase::kFailed;
  pods()[1].exit_code = 137;
  pods().pop_back();  // the other one is missing: it must not be made in the attempt to come before the old pods are gone
  spec().failure_policy.rules = {{.name = "all", .action = job::FailureAction::kRestartJob, .on_exit_codes = {137}}};
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRestarting);
  EXPECT_EQ(decision.memory.attempt, 1);
  EXPECT_THAT(decision.create, IsEmpty());
}

TEST_F(DecideTest, ABrokerThatIsGoneAfterItRanCountsAsARestart) {
  AddRunning();
  pods().erase(pods().begin());
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.memory.attempt, 1);
  EXPECT_EQ(decision.memory.counted_restarts, 1);
  EXPECT_EQ(Removed(decision).size(), 2);
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
  EXPECT_FALSE(decision.memory.started_at.has_value()) << "the deadline counts from the resumption";

  seen_.memory = decision.memory;
  spec().suspend = false;
  decision = Decide(seen_);
  EXPECT_TRUE(decision.create_broker);
  EXPECT_EQ(decision.memory.attempt, 1) << "it is placed anew";
  EXPECT_EQ(decision.memory.restarts, 0) << "a resumption is no restart";
  EXPECT_EQ(decision.memory.counted_restarts, 0);
}

TEST_F(DecideTest, AJobThatIsResumedWhileItStillEndsBeginsAnewAndIsNeitherCompleteNorFailed) {
  AddRunning();
  seen_.memory.was_suspended = seen_.memory.suspending = true;
  for (const PodPhase phase : {PodPhase::kRunning, PodPhase::kSucceeded, PodPhase::kFailed}) {
    pods()[0].phase = phase;
    pods()[0].exit_code = phase == PodPhase::kRunning ? std::nullopt : std::optional(phase == PodPhase::kSucceeded ? 0 : 1);
    pods()[0].deleted_at = kStart + absl::Seconds(30);
    const Decision decision = Decide(seen_);
    EXPECT_FALSE(decision.memory.complete || decision.memory.failed);
    EXPECT_EQ(decision.memory.attempt, 1);
    EXPECT_EQ(decision.memory.restarts, 0) << "nothing has failed";
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
  EXPECT_EQ(decision.look_again, absl::Seconds(1));
  seen_.now = kStart + absl::Seconds(60);
  decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Failed"), "DeadlineExceeded");
  EXPECT_EQ(decision.memory.completed_at, seen_.now);
}

TEST_F(DecideTest, AJobThatDoesNotGetReadyFailsWithWhatIsShort) {
  spec().pending_deadline_seconds = 30;
  seen_.slots.clear();
  seen_.placement_problem = "paris: 2 executors wanted, 1 fits";
  EXPECT_EQ(Reason(Decide(seen_), "Dispatched"), "!PlacementFailed");
  seen_.now = kStart + absl::Seconds(30);
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Failed"), "PendingDeadlineExceeded");
  EXPECT_THAT(Find(decision, "Failed")->message, HasSubstr("1 fits"));
}

TEST_F(DecideTest, WhyAPodWaitsIsInTheCondition) {
  seen_.memory.started_at = kStart;
  AddBroker(PodPhase::kRunning);
  PodView& pod = AddExecutor(0, PodPhase::kPending, false);
  pod.reason = "Unschedulable";
  pod.message = "0/1 nodes are available: 1 Insufficient memory.";
  AddExecutor(1, PodPhase::kRunning, true);
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Ready"), "!ExecutorsNotReady");
  EXPECT_THAT(Find(decision, "Ready")->message,
              HasSubstr("1 of 2 executors are ready. train-paris-0-r0 in paris: Unschedulable: 0/1 nodes"));
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

TEST_F(DecideTest, PodsOfAFinishedJobEndAsItsPolicySays) {
  AddRunning();
  pods()[0].phase = PodPhase::kSucceeded;
  seen_.memory.complete = true;
  seen_.memory.completed_at = kStart;
  EXPECT_EQ(Removed(Decide(seen_)).size(), 2) << "those that run";
  spec().clean_pod_policy = job::CleanPodPolicy::kNone;
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty());
  spec().clean_pod_policy = job::CleanPodPolicy::kAll;
  EXPECT_TRUE(Decide(seen_).delete_anchors);
}

TEST_F(DecideTest, AFinishedJobIsDeletedWhenItsTimeIsOver) {
  seen_.memory.complete = true;
  seen_.memory.completed_at = kStart;
  spec().ttl_seconds_after_finished = 100;
  EXPECT_EQ(Decide(seen_).look_again, absl::Seconds(100));
  seen_.now = kStart + absl::Seconds(100);
  EXPECT_TRUE(Decide(seen_).delete_job);
}

TEST_F(DecideTest, DeletionNeverCreatesAndLetsGoWhenNothingIsLeft) {
  AddRunning();
  pods().pop_back();
  seen_.deleted_at = kStart;
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kDeleting);
  EXPECT_TRUE(decision.delete_anchors);
  EXPECT_FALSE(decision.prepare);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_FALSE(decision.remove_finalizer);
  EXPECT_THAT(Find(decision, "Deleting")->message, HasSubstr("paris"));
  seen_.clusters[0] = {.name = "paris"};
  EXPECT_TRUE(Decide(seen_).remove_finalizer);
}

TEST_F(DecideTest, ADeletedJobNoticesThatAClusterIsAwayWhichItWaitsFor) {
  AddRunning();
  seen_.deleted_at = kStart;
  EXPECT_EQ(Decide(seen_).look_again, absl::InfiniteDuration()) << "what ends on the hub tells so";
  seen_.clusters.push_back({.name = "tokyo", .used = true, .anchor = true});
  EXPECT_EQ(Decide(seen_).look_again, absl::Seconds(5));
  seen_.clusters.back().reachable = false;
  seen_.now = kStart + absl::Seconds(400);
  seen_.clusters.front() = {.name = "paris"};
  EXPECT_THAT(Decide(seen_).tombstones, ElementsAre("tokyo"));
}

TEST_F(DecideTest, AClusterThatIsAwayDoesNotHoldADeletedJobForEver) {
  AddRunning();
  seen_.clusters[0].reachable = false;
  seen_.deleted_at = kStart;
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.remove_finalizer);
  EXPECT_EQ(Reason(decision, "Deleting"), "ClusterUnreachable");
  EXPECT_EQ(decision.look_again, absl::Seconds(5)) << "nobody tells that it is back, if it has nothing of the job";
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds - 2);
  EXPECT_EQ(Decide(seen_).look_again, absl::Seconds(2));
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds);
  EXPECT_TRUE(Decide(seen_).remove_finalizer);
}

TEST_F(DecideTest, ResourcesMayBePreserved) {
  AddRunning();
  spec().preserve_resources_on_deletion = true;
  seen_.deleted_at = kStart;
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.delete_anchors);
  EXPECT_TRUE(decision.preserve_anchors);
  EXPECT_FALSE(decision.remove_finalizer) << "not before it is marked as what it is";
  seen_.clusters[0].anchor_preserved = true;
  decision = Decide(seen_);
  EXPECT_FALSE(decision.preserve_anchors);
  EXPECT_TRUE(decision.remove_finalizer);
  EXPECT_THAT(decision.remove, IsEmpty());
}

TEST_F(DecideTest, WhatMayBeLeftWhereNobodyCanLookGetsATombstone) {
  seen_.clusters.push_back({.name = "tokyo", .reachable = false, .used = true});
  seen_.clusters.push_back({.name = "lima", .reachable = false});
  seen_.deleted_at = kStart;
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.remove_finalizer);
  EXPECT_THAT(decision.tombstones, IsEmpty());
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds);
  decision = Decide(seen_);
  EXPECT_TRUE(decision.remove_finalizer);
  EXPECT_THAT(decision.tombstones, ElementsAre("tokyo")) << "the job was never in Lima";
}

TEST_F(DecideTest, WhatIsStuckHoldsADeletedJobForALongTimeOnly) {
  AddRunning();
  pods().resize(1);
  seen_.deleted_at = kStart;
  seen_.now = kStart + absl::Hours(24);
  EXPECT_FALSE(Decide(seen_).remove_finalizer) << "a Pod that runs was not even told to end";
  pods()[0].deleted_at = kStart + absl::Hours(1);  // its grace period was long
  EXPECT_FALSE(Decide(seen_).remove_finalizer) << "nor its owner";
  seen_.clusters[0].anchor_terminating = true;
  const absl::Time stuck = kStart + absl::Hours(1) + absl::Seconds(spec().force_delete_after_seconds) + kStuckPatience;
  seen_.now = stuck - absl::Seconds(1);
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.remove_finalizer);
  EXPECT_EQ(decision.look_again, absl::Seconds(1));
  EXPECT_EQ(Find(decision, "Deleting")->message, "Waiting for objects in paris: Pod train-broker-r0, ConfigMap train-anchor of paris.");
  seen_.now = stuck;
  decision = Decide(seen_);
  EXPECT_TRUE(decision.remove_finalizer);
  EXPECT_THAT(decision.tombstones, ElementsAre("paris")) << "what is left is remembered";
  ASSERT_EQ(decision.notes.size(), 1);
  EXPECT_EQ(decision.notes[0].reason, "LeftBehind");
}

TEST_F(DecideTest, WhoeverForcesADeletionWaitsForNothing) {
  AddRunning();
  seen_.clusters.push_back({.name = "tokyo", .reachable = false, .used = true});
  seen_.deleted_at = kStart;
  EXPECT_FALSE(Decide(seen_).remove_finalizer);
  seen_.force_delete = true;
  const Decision decision = Decide(seen_);
  EXPECT_TRUE(decision.remove_finalizer);
  EXPECT_TRUE(decision.delete_anchors) << "it is told to go all the same";
  EXPECT_THAT(decision.tombstones, ElementsAre("paris", "tokyo"));
}

TEST_F(DecideTest, ALostClusterHoldsUpNeitherASuspensionNorANewAttempt) {
  AddRunning();
  seen_.clusters.push_back({.name = "tokyo", .reachable = false, .used = true});
  seen_.clusters[1].pods = {PodView{.name = "train-tokyo-0-r0", .uid = "t", .role = kExecutorRole, .cluster = "tokyo", .ready = true}};
  pods().clear();
  spec().suspend = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspending);
  seen_.clusters[1].lost = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspended);
  spec().suspend = false;
  seen_.memory.attempt = 1;
  seen_.memory.was_ready = false;
  EXPECT_TRUE(Decide(seen_).create_broker);
  seen_.clusters[1].lost = false;
  EXPECT_FALSE(Decide(seen_).create_broker);
  AddBroker(PodPhase::kRunning, 1);
  EXPECT_NE(Decide(seen_).state, JobState::kRestarting) << "it turns up when the attempt has begun";
  EXPECT_THAT(Removed(Decide(seen_)), ElementsAre("train-tokyo-0-r0"));
}

TEST_F(DecideTest, WhereNobodyCanLookTheOldAttemptMayStillBeAtWorkUntilTheClusterIsLost) {
  seen_.memory.started_at = kStart;
  seen_.memory.attempt = 1;
  seen_.clusters.push_back({.name = "tokyo", .reachable = false, .listed = false, .registered = false, .used = true});
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_THAT(Find(decision, "Ready")->message, HasSubstr("tokyo has no FusionCluster"));
  EXPECT_EQ(decision.look_again, absl::Seconds(5));
  spec().suspend = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspending);
  seen_.clusters[1].lost = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspended);
  spec().suspend = false;
  EXPECT_TRUE(Decide(seen_).create_broker);
  seen_.clusters[1].lost = false;
  seen_.memory.started_at.reset();
  EXPECT_TRUE(Decide(seen_).create_broker) << "it was suspended: all had ended";
  seen_.memory = {.started_at = kStart};
  EXPECT_TRUE(Decide(seen_).create_broker) << "there is no attempt before the first";
}

TEST_F(DecideTest, AClusterThatCannotBeReachedIsNamed) {
  AddRunning();
  pods().pop_back();
  seen_.clusters[0].reachable = false;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Degraded"), "ClusterUnreachable");
  EXPECT_THAT(Find(decision, "Degraded")->message, HasSubstr("Cluster paris cannot be reached"));
  EXPECT_THAT(decision.create, IsEmpty());
}

TEST_F(DecideTest, ExecutorsOfALostClusterAreMissing) {
  AddRunning();
  seen_.clusters[0].lost = true;
  Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Degraded"), "ClusterLost");
  EXPECT_EQ(decision.memory.attempt, 0);
  EXPECT_THAT(decision.create, IsEmpty());
  seen_.memory.was_ready = false;
  decision = Decide(seen_);
  EXPECT_EQ(decision.memory.attempt, 1) << "it would never begin";
  EXPECT_EQ(decision.memory.counted_restarts, 0);
  seen_.memory.was_ready = true;
  spec().failure_policy.rules = {{.name = "move", .action = job::FailureAction::kReplaceCluster, .on_reasons = {"ClusterLost"}}};
  EXPECT_EQ(Decide(seen_).memory.counted_restarts, 1);
  spec().failure_policy.rules[0].action = job::FailureAction::kFailJob;
  EXPECT_TRUE(Decide(seen_).memory.failed);
}

TEST_F(DecideTest, AStatusThatWasLostDoesNotEndThePodsOfALaterAttempt) {
  AddRunning();
  for (PodView& pod : pods()) pod.attempt = 3;
  seen_.memory = {};
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.memory.attempt, 3);
  EXPECT_THAT(decision.remove, IsEmpty());
  EXPECT_EQ(decision.state, JobState::kRunning);
}

TEST_F(DecideTest, NothingBeginsBeforeEachClusterWouldTakeItsPart) {
  seen_.clusters.push_back({.name = "tokyo"});
  seen_.slots.push_back({"tokyo", 0, false});
  seen_.clusters[1].untried = true;
  Decision decision = Decide(seen_);
  EXPECT_TRUE(decision.prepare) << "meanwhile";
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_EQ(Reason(decision, "Dispatched"), "none") << "it is not known yet";
  EXPECT_LE(decision.look_again, absl::Seconds(1));
  seen_.clusters[1].untried = false;
  seen_.clusters[1].refusal = Refusal{"QuotaExceeded", "Cluster tokyo: exceeded quota."};
  seen_.clusters[1].again = kStart + absl::Minutes(1);
  decision = Decide(seen_);
  EXPECT_FALSE(decision.prepare);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_EQ(decision.state, JobState::kPending);
  EXPECT_EQ(Reason(decision, "Dispatched"), "!QuotaExceeded");
  EXPECT_EQ(Find(decision, "Dispatched")->message, "Cluster tokyo: exceeded quota.");
  EXPECT_EQ(decision.look_again, absl::Minutes(1));
  EXPECT_FALSE(decision.memory.started_at.has_value()) << "its time does not run yet";
  seen_.now += absl::Minutes(1);
  decision = Decide(seen_);
  EXPECT_EQ(decision.create, seen_.slots) << "it is tried again";
  EXPECT_EQ(Reason(decision, "Dispatched"), "!QuotaExceeded") << "and said until it went well";
  seen_.clusters[1].again = absl::InfiniteFuture();
  decision = Decide(seen_);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_EQ(decision.look_again, absl::InfiniteDuration()) << "before the spec changes it is hopeless";
}

TEST_F(DecideTest, WhatIsRefusedOfAJobThatRunsHoldsUpNothingElse) {
  AddRunning();
  pods().erase(pods().begin() + 1, pods().end());
  seen_.clusters.push_back({.name = "tokyo", .refusal = Refusal{"QuotaExceeded", "Cluster tokyo: exceeded quota."}});
  seen_.clusters[1].again = kStart + absl::Minutes(1);
  seen_.slots.push_back({"tokyo", 0, false});
  const Decision decision = Decide(seen_);
  EXPECT_THAT(decision.create, ElementsAre(ExecutorSlot{"paris", 0, false}, ExecutorSlot{"paris", 1, false}));
  EXPECT_EQ(Reason(decision, "Degraded"), "QuotaExceeded");
  EXPECT_EQ(decision.look_again, absl::Minutes(1));
}

TEST_F(DecideTest, WhatCannotBeRemovedIsSaid) {
  AddRunning();
  seen_.deleted_at = kStart;
  seen_.clusters[0].refusal = Refusal{"Forbidden", "Cluster paris: pods is forbidden."};
  EXPECT_THAT(Find(Decide(seen_), "Deleting")->message, HasSubstr("pods is forbidden"));
}

// An operator that is killed after it wrote the status, or before, decides the same again.
TEST_F(DecideTest, DecidingTwiceIsDecidingOnce) {
  AddRunning();
  FailBroker(1);
  Decision first = Decide(seen_);
  EXPECT_EQ(Decide(seen_).memory.attempt, first.memory.attempt);
  seen_.memory = first.memory;
  const Decision second = Decide(seen_);
  EXPECT_EQ(second.memory.attempt, first.memory.attempt);
  EXPECT_EQ(second.memory.counted_restarts, first.memory.counted_restarts);
  EXPECT_EQ(Removed(second), Removed(first));
}

}  // namespace
}  // namespace fusionllm::op
