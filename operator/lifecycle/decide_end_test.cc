// Jobs that are over, and jobs that are deleted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "operator/lifecycle/testing/decide_fixture.h"

namespace fusionllm::op::lifecycle {
namespace {

using testing::DecideTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kStart;

TEST_F(DecideTest, PodsOfAFinishedJobEndAsItsPolicySays) {
  AddRunning();
  pods()[0].phase = PodPhase::kSucceeded;
  seen_.persisted.complete = true;
  seen_.persisted.completed_at = kStart;
  EXPECT_EQ(Removed(Decide(seen_)).size(), 2) << "those that run";
  spec().clean_pod_policy = job::CleanPodPolicy::kNone;
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty());
  spec().clean_pod_policy = job::CleanPodPolicy::kAll;
  EXPECT_TRUE(Decide(seen_).delete_owner_config_maps);
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty()) << "all go with the owner ConfigMap";
  pods()[1].deleted_at = kStart;
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(spec().force_delete_after_seconds));
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds);
  EXPECT_THAT(Removed(Decide(seen_)), ElementsAre("train-paris-0-r0")) << "its kubelet does not say that it has ended";
}

TEST_F(DecideTest, AnExecutorThatHasDoneItsPartIsNotMissedWhileTheBrokerEnds) {
  AddRunning();
  seen_.persisted.was_ready = true;
  PodView& executor = pods().back();
  executor.phase = PodPhase::kSucceeded;
  executor.ready = false;
  executor.reason = "Completed";
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
  EXPECT_EQ(Reason(decision, "Degraded"), "!NotDegraded");
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_THAT(decision.create, IsEmpty());
  executor.reason = manifests::kBrokerLostReason;
  EXPECT_EQ(Reason(Decide(seen_), "Degraded"), "ExecutorsNotReady") << "that one is missed";
}

TEST_F(DecideTest, AFinishedJobIsDeletedWhenItsTimeIsOver) {
  seen_.persisted.complete = true;
  seen_.persisted.completed_at = kStart;
  spec().ttl_seconds_after_finished = 100;
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(100));
  seen_.now = kStart + absl::Seconds(100);
  EXPECT_TRUE(Decide(seen_).delete_job);
}

TEST_F(DecideTest, DeletionNeverCreatesAndLetsGoWhenNothingIsLeft) {
  AddRunning();
  pods().pop_back();
  seen_.deleted_at = kStart;
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kDeleting);
  EXPECT_TRUE(decision.delete_owner_config_maps);
  EXPECT_FALSE(decision.prepare);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_FALSE(decision.remove_finalizer);
  EXPECT_THAT(Find(decision, "Deleting")->message, HasSubstr("paris"));
  seen_.clusters[0] = {.name = "paris"};
  EXPECT_TRUE(Decide(seen_).remove_finalizer);
}

TEST_F(DecideTest, PodsOfADeletedJobGetSecondsToEndWhateverTheirOwnTime) {
  AddRunning();
  AddExecutor(2, PodPhase::kSucceeded, false);
  pods()[0].deleted_at = kStart + absl::Minutes(12);  // its job was being suspended
  pods()[1].deleted_at = kStart + absl::Seconds(2);
  seen_.deleted_at = kStart;
  const Decision decision = Decide(seen_);
  EXPECT_THAT(Removed(decision), ElementsAre("train-broker-r0", "train-paris-1-r0"));
  for (const PodRemoval& removal : decision.remove) EXPECT_EQ(removal.grace_seconds, 5) << removal.name;
  EXPECT_TRUE(decision.delete_owner_config_maps);
  pods()[0].deleted_at = kStart + absl::Seconds(5);
  pods()[2].deleted_at = kStart + absl::Seconds(5);
  EXPECT_THAT(Removed(Decide(seen_)), IsEmpty()) << "told already";
}

TEST_F(DecideTest, WhatIsLeftOfADeletedJobIsNamedInTheSameOrderEachTime) {
  AddRunning();
  AddExecutor(2, PodPhase::kRunning, true);
  seen_.deleted_at = kStart;
  const std::string message = Find(Decide(seen_), "Deleting")->message;
  std::reverse(pods().begin(), pods().end());
  EXPECT_EQ(Find(Decide(seen_), "Deleting")->message, message) << "or the status would be written again";
}

TEST_F(DecideTest, ADeletedJobNoticesThatAClusterIsAwayWhichItWaitsFor) {
  AddRunning();
  seen_.deleted_at = kStart;
  EXPECT_EQ(Decide(seen_).requeue_after, absl::InfiniteDuration()) << "what ends on the hub tells so";
  seen_.clusters.push_back({.name = "tokyo", .used = true, .owner_config_map = true});
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(5));
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
  EXPECT_EQ(decision.requeue_after, absl::Seconds(5)) << "nobody tells that it is back, if it has nothing of the job";
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds - 2);
  EXPECT_EQ(Decide(seen_).requeue_after, absl::Seconds(2));
  seen_.now = kStart + absl::Seconds(spec().force_delete_after_seconds);
  EXPECT_TRUE(Decide(seen_).remove_finalizer);
}

TEST_F(DecideTest, ResourcesMayBePreserved) {
  AddRunning();
  spec().preserve_resources_on_deletion = true;
  seen_.deleted_at = kStart;
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.delete_owner_config_maps);
  EXPECT_TRUE(decision.preserve_owner_config_maps);
  EXPECT_FALSE(decision.remove_finalizer) << "not before it is marked as what it is";
  seen_.clusters[0].owner_config_map_preserved = true;
  decision = Decide(seen_);
  EXPECT_FALSE(decision.preserve_owner_config_maps);
  EXPECT_TRUE(decision.remove_finalizer);
  EXPECT_THAT(decision.remove, IsEmpty());
}

TEST_F(DecideTest, UnreachableClusterGetsTombstoneOnDeletion) {
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
  seen_.clusters[0].owner_config_map_terminating = true;
  const absl::Time stuck = kStart + absl::Hours(1) + absl::Seconds(spec().force_delete_after_seconds) + kStuckTimeout;
  seen_.now = stuck - absl::Seconds(1);
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.remove_finalizer);
  EXPECT_EQ(decision.requeue_after, absl::Seconds(1));
  EXPECT_EQ(Find(decision, "Deleting")->message, "Waiting for objects in the hub: Pod train-broker-r0, ConfigMap train-anchor of the hub.");
  seen_.now = stuck;
  decision = Decide(seen_);
  EXPECT_TRUE(decision.remove_finalizer);
  EXPECT_THAT(decision.tombstones, ElementsAre("paris")) << "what is left is remembered";
  ASSERT_EQ(decision.events.size(), 1);
  EXPECT_EQ(decision.events[0].reason, "CleanupIncomplete");
}

TEST_F(DecideTest, ForcedDeletionDoesNotWait) {
  AddRunning();
  seen_.clusters.push_back({.name = "tokyo", .reachable = false, .used = true});
  seen_.deleted_at = kStart;
  EXPECT_FALSE(Decide(seen_).remove_finalizer);
  seen_.force_delete = true;
  const Decision decision = Decide(seen_);
  EXPECT_TRUE(decision.remove_finalizer);
  EXPECT_TRUE(decision.delete_owner_config_maps) << "it is told to go all the same";
  EXPECT_THAT(decision.tombstones, ElementsAre("paris", "tokyo"));
}

TEST_F(DecideTest, WhatCannotBeRemovedIsSaid) {
  AddRunning();
  seen_.deleted_at = kStart;
  seen_.clusters[0].refusal = Refusal{"Forbidden", "Cluster paris: pods is forbidden."};
  EXPECT_THAT(Find(Decide(seen_), "Deleting")->message, HasSubstr("pods is forbidden"));
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
