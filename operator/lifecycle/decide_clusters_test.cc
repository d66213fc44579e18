// Clusters that are away, lost, or refuse something.
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

TEST_F(DecideTest, ALostClusterHoldsUpNeitherASuspensionNorANewAttempt) {
  AddRunning();
  seen_.clusters.push_back({.name = "tokyo", .reachable = false, .used = true});
  seen_.clusters[1].pods = {
      PodView{.name = "train-tokyo-0-r0", .uid = "t", .role = manifests::kExecutorRole, .cluster = "tokyo", .ready = true}};
  pods().clear();
  spec().suspend = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspending);
  seen_.clusters[1].lost = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspended);
  spec().suspend = false;
  seen_.persisted.attempt = 1;
  seen_.persisted.was_ready = false;
  EXPECT_TRUE(Decide(seen_).create_broker);
  seen_.clusters[1].lost = false;
  EXPECT_FALSE(Decide(seen_).create_broker);
  AddBroker(PodPhase::kRunning, 1);
  EXPECT_NE(Decide(seen_).state, JobState::kRestarting) << "it turns up when the attempt has begun";
  EXPECT_THAT(Removed(Decide(seen_)), ElementsAre("train-tokyo-0-r0"));
}

TEST_F(DecideTest, UnreachableClusterBlocksNewAttemptUntilLost) {
  seen_.persisted.started_at = kStart;
  seen_.persisted.attempt = 1;
  seen_.clusters.push_back({.name = "tokyo", .reachable = false, .listed = false, .registered = false, .used = true});
  Decision decision = Decide(seen_);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_THAT(Find(decision, "Ready")->message, HasSubstr("tokyo has no FusionCluster"));
  EXPECT_EQ(decision.requeue_after, absl::Seconds(5));
  spec().suspend = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspending);
  seen_.clusters[1].lost = true;
  EXPECT_EQ(Decide(seen_).state, JobState::kSuspended);
  spec().suspend = false;
  EXPECT_TRUE(Decide(seen_).create_broker);
  seen_.clusters[1].lost = false;
  seen_.persisted.started_at.reset();
  EXPECT_TRUE(Decide(seen_).create_broker) << "it was suspended: all had ended";
  seen_.persisted = {.started_at = kStart};
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
  EXPECT_EQ(decision.persisted.attempt, 0);
  EXPECT_THAT(decision.create, IsEmpty());
  seen_.persisted.was_ready = false;
  decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 1) << "it would never begin";
  EXPECT_EQ(decision.persisted.counted_restarts, 0);
  seen_.persisted.was_ready = true;
  spec().failure_policy.rules = {{.name = "move", .action = job::FailureAction::kReplaceCluster, .on_reasons = {"ClusterLost"}}};
  EXPECT_EQ(Decide(seen_).persisted.counted_restarts, 1);
  spec().failure_policy.rules[0].action = job::FailureAction::kFailJob;
  EXPECT_TRUE(Decide(seen_).persisted.failed);
}

TEST_F(DecideTest, NothingBeginsBeforeEachClusterWouldTakeItsPart) {
  seen_.clusters.push_back({.name = "tokyo"});
  seen_.slots.push_back({"tokyo", 0, false});
  seen_.clusters[1].dry_run_pending = true;
  Decision decision = Decide(seen_);
  EXPECT_TRUE(decision.prepare) << "meanwhile";
  EXPECT_FALSE(decision.create_broker);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_EQ(Reason(decision, "Scheduled"), "none") << "it is not known yet";
  EXPECT_LE(decision.requeue_after, absl::Seconds(1));
  seen_.clusters[1].dry_run_pending = false;
  seen_.clusters[1].refusal = Refusal{"QuotaExceeded", "Cluster tokyo: exceeded quota."};
  seen_.clusters[1].retry_at = kStart + absl::Minutes(1);
  decision = Decide(seen_);
  EXPECT_FALSE(decision.prepare);
  EXPECT_FALSE(decision.create_broker);
  EXPECT_EQ(decision.state, JobState::kPending);
  EXPECT_EQ(Reason(decision, "Scheduled"), "!QuotaExceeded");
  EXPECT_EQ(Find(decision, "Scheduled")->message, "Cluster tokyo: exceeded quota.");
  EXPECT_EQ(decision.requeue_after, absl::Minutes(1));
  EXPECT_FALSE(decision.persisted.started_at.has_value()) << "its time does not run yet";
  EXPECT_TRUE(decision.refused);
  seen_.now += absl::Minutes(1);
  AddExecutor(0, PodPhase::kRunning, true);
  decision = Decide(seen_);
  EXPECT_FALSE(decision.create_broker) << "that it is due to be asked anew is no answer";
  EXPECT_THAT(Removed(decision), ElementsAre("train-paris-0-r0")) << "made before that was known";
  EXPECT_EQ(decision.requeue_after, absl::Seconds(5));
  pods().clear();
  seen_.clusters[1].dry_run_accepted = true;
  seen_.clusters[0].refusal = Refusal{"QuotaExceeded", "The hub: exceeded quota."};
  EXPECT_EQ(Find(Decide(seen_), "Scheduled")->message, "The hub: exceeded quota.") << "it has not been asked anew";
  seen_.clusters[0].dry_run_accepted = true;
  EXPECT_TRUE(Decide(seen_).create_broker);
  seen_.clusters[0].refusal.reset();
  decision = Decide(seen_);
  EXPECT_EQ(decision.create, seen_.slots) << "it is tried again";
  EXPECT_EQ(Reason(decision, "Scheduled"), "!QuotaExceeded") << "and said until it went well";
  seen_.clusters[1].retry_at = absl::InfiniteFuture();
  seen_.clusters[1].dry_run_accepted = false;
  decision = Decide(seen_);
  EXPECT_THAT(decision.create, IsEmpty());
  EXPECT_EQ(decision.requeue_after, absl::InfiniteDuration()) << "before the spec changes it is hopeless";
}

TEST_F(DecideTest, WhatIsRefusedOfAJobThatRunsHoldsUpNothingElse) {
  AddRunning();
  pods().erase(pods().begin() + 1, pods().end());
  seen_.clusters.push_back({.name = "tokyo", .refusal = Refusal{"QuotaExceeded", "Cluster tokyo: exceeded quota."}});
  seen_.clusters[1].retry_at = kStart + absl::Minutes(1);
  seen_.slots.push_back({"tokyo", 0, false});
  const Decision decision = Decide(seen_);
  EXPECT_THAT(decision.create, ElementsAre(manifests::ExecutorSlot{"paris", 0, false}, manifests::ExecutorSlot{"paris", 1, false}));
  EXPECT_EQ(Reason(decision, "Degraded"), "QuotaExceeded");
  EXPECT_EQ(decision.requeue_after, absl::Minutes(1));
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
