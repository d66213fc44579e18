// A job that runs with fewer executors than it wants, or more; and waits for room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "operator/lifecycle/decide.h"
#include "operator/lifecycle/testing/decide_fixture.h"

namespace fusionllm::op::lifecycle {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kStart;
using ::testing::UnorderedElementsAre;

// A job that wants four executors, keeps checkpoints, and has been placed with two in Paris.
class ResizeTest : public ::testing::Test {
 protected:
  ResizeTest() {
    seen_.identity = {.name = "train", .ns = "team", .uid = "u1", .origin = "hub"};
    seen_.now = seen_.created_at = kStart;
    seen_.finalizer = true;
    seen_.slots = Slots(2);
    seen_.wanted = seen_.wanted_when_placed = 4;
    seen_.placed = true;
    seen_.clusters = {{.name = "paris"}};
    seen_.persisted.started_at = kStart;
    seen_.persisted.was_ready = true;
    spec().executors.replicas = 4;
    spec().executors.stabilization_seconds = 100;
    spec().checkpoint = job::Checkpoint{.path = "s3://models/ckpt"};
    Add(manifests::kBrokerRole, manifests::BrokerPodName(seen_.identity, 0), 0);
    for (int i = 0; i < 2; ++i) Add(manifests::kExecutorRole, manifests::ExecutorPodName(seen_.identity, {"paris", i, false}, 0), i);
  }
  static std::vector<manifests::ExecutorSlot> Slots(int count) {
    std::vector<manifests::ExecutorSlot> slots;
    for (int i = 0; i < count; ++i) slots.push_back({"paris", i, false});
    return slots;
  }
  void Add(const char* role, const std::string& name, int index, int64_t attempt = 0) {
    seen_.clusters[0].pods.push_back({.name = name,
                                      .uid = name,
                                      .role = role,
                                      .cluster = "paris",
                                      .index = index,
                                      .attempt = attempt,
                                      .phase = PodPhase::kRunning,
                                      .ready = true});
  }
  job::Spec& spec() { return seen_.job.spec; }
  static std::string Reason(const Decision& decision, const std::string& type) {
    const auto at =
        std::find_if(decision.conditions.begin(), decision.conditions.end(), [&](const auto& c) { return Name(c.type) == type; });
    return at == decision.conditions.end() ? "none" : absl::StrCat(at->status ? "" : "!", at->reason);
  }
  static std::vector<std::string> Removed(const Decision& decision) {
    std::vector<std::string> names;
    for (const PodRemoval& removal : decision.remove) names.push_back(removal.name);
    return names;
  }

  Observation seen_;
};

TEST_F(ResizeTest, WithoutRoomItRunsOnWithFewerAndSaysSo) {
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_EQ(decision.persisted.attempt, 0);
  EXPECT_EQ(Reason(decision, "Scheduled"), "PartiallyScheduled");
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
  EXPECT_EQ(Reason(decision, "Resizing"), "none");
}

TEST_F(ResizeTest, RoomForMoreMustLast) {
  seen_.next_placement = Slots(3);
  Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Resizing"), "CapacityAvailable");
  EXPECT_EQ(decision.persisted.attempt, 0);
  EXPECT_EQ(decision.requeue_after, absl::Seconds(100));

  seen_.persisted.extra_capacity_since = kStart;
  seen_.now = kStart + absl::Seconds(99);
  EXPECT_EQ(Decide(seen_).persisted.attempt, 0);

  seen_.next_placement = Slots(2);
  EXPECT_EQ(Reason(Decide(seen_), "Resizing"), "!CapacityGone") << "the time begins anew";

  seen_.next_placement = Slots(3);
  seen_.now = kStart + absl::Seconds(100);
  decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 1);
  EXPECT_EQ(decision.persisted.restarts, 0) << "nothing has failed";
  EXPECT_EQ(decision.persisted.counted_restarts, 0);
  EXPECT_EQ(Reason(decision, "Resizing"), "!Resized");
  ASSERT_EQ(decision.events.size(), 1);
  EXPECT_FALSE(decision.events[0].warning);
  EXPECT_THAT(decision.events[0].message, HasSubstr("from 2 executors to 3"));
}

TEST_F(ResizeTest, TheBrokerEndsFirstWithACheckpointForWhichItNeedsTheExecutors) {
  seen_.next_placement = Slots(4);
  seen_.persisted.extra_capacity_since = kStart;
  seen_.now = kStart + absl::Seconds(100);
  Decision decision = Decide(seen_);
  EXPECT_THAT(Removed(decision), UnorderedElementsAre("train-broker-r0"));
  EXPECT_EQ(decision.state, JobState::kRestarting);

  seen_.persisted = decision.persisted;
  seen_.placed = false;  // the placement that is kept is the first attempt's
  seen_.slots = Slots(4);
  seen_.clusters[0].pods[0].phase = PodPhase::kFailed;  // exit code 130: interrupted
  seen_.clusters[0].pods[0].exit_code = 130;
  decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 1) << "its end is expected";
  EXPECT_EQ(Removed(decision).size(), 3);
}

TEST_F(ResizeTest, WhoChangesTheNumberIsNotKeptWaiting) {
  seen_.wanted_when_placed = 2;  // kubectl scale, from 2 to 4
  seen_.next_placement = Slots(4);
  EXPECT_EQ(Decide(seen_).persisted.attempt, 1);
  seen_.next_placement.clear();
  EXPECT_EQ(Decide(seen_).persisted.attempt, 0) << "there is no room";
}

TEST_F(ResizeTest, FewerAreHadAtOnce) {
  seen_.wanted = 1;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 1);
  ASSERT_EQ(decision.events.size(), 1);
  EXPECT_THAT(decision.events[0].message, HasSubstr("from 2 executors to 1"));
}

TEST_F(ResizeTest, WithoutACheckpointARunningJobKeepsItsSteps) {
  spec().checkpoint.reset();
  seen_.wanted = 1;
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 0);
  EXPECT_EQ(Reason(decision, "Resizing"), "!NoCheckpoint");
  seen_.persisted.was_ready = false;
  EXPECT_EQ(Decide(seen_).persisted.attempt, 1) << "one that has not begun has none to lose";
}

TEST_F(ResizeTest, ACheckpointThatGoesWithTheBrokersPodIsNone) {
  seen_.wanted = 1;
  const auto keeps = [this] { return Decide(seen_).persisted.attempt == 1; };
  spec().checkpoint = job::Checkpoint{.path = "ckpt"};
  EXPECT_FALSE(keeps());
  EXPECT_EQ(Reason(Decide(seen_), "Resizing"), "!NoCheckpoint");
  const std::string claim = R"({"persistentVolumeClaim":{"claimName":"c"}})";
  spec().checkpoint->volume.json = claim;
  EXPECT_TRUE(keeps());
  spec().checkpoint->volume.json.clear();
  spec().broker.volume.json = claim;
  EXPECT_TRUE(keeps());
  spec().broker.volume.json.clear();
  spec().checkpoint->replica = job::Replica{.path = "s3://models/ckpt"};
  EXPECT_TRUE(keeps());
  spec().checkpoint->resume = "never";
  EXPECT_FALSE(keeps());
}

TEST_F(ResizeTest, AProposalWithFewerWaitsALittleForMoreRoom) {
  seen_.placed = false;
  seen_.placement_shortage = "2 of 4 executors find room";
  seen_.clusters[0].pods.clear();
  seen_.persisted.was_ready = false;
  Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Scheduled"), "!InsufficientCapacity");
  EXPECT_FALSE(decision.prepare);
  EXPECT_EQ(decision.requeue_after, kCapacityWait);
  seen_.persisted.capacity_wait_since = kStart;
  seen_.now = kStart + kCapacityWait;
  decision = Decide(seen_);
  EXPECT_TRUE(decision.prepare);
  EXPECT_EQ(decision.create.size(), 2);
  EXPECT_EQ(Reason(decision, "Scheduled"), "!InsufficientCapacity") << "which remembers since when, until the placement is written down";
  seen_.placed = true;
  EXPECT_EQ(Reason(Decide(seen_), "Scheduled"), "PartiallyScheduled");
}

TEST_F(ResizeTest, WhoFindsNoRoomForItsNextAttemptStillEndsTheOneBefore) {
  seen_.placed = false;
  seen_.slots.clear();
  seen_.placement_problem = "paris: room for 0";
  seen_.persisted.attempt = 1;
  const Decision decision = Decide(seen_);
  EXPECT_EQ(Reason(decision, "Scheduled"), "!PlacementFailed");
  EXPECT_THAT(Removed(decision), UnorderedElementsAre("train-broker-r0"));
  EXPECT_LT(decision.requeue_after, absl::InfiniteDuration());
}

TEST_F(ResizeTest, LatePodsOfEarlierAttemptDoNotBlock) {
  seen_.wanted = 2;
  for (PodView& pod : seen_.clusters[0].pods) pod.attempt = 1;
  seen_.persisted.attempt = 1;
  seen_.clusters.push_back({.name = "tokyo"});
  seen_.clusters[1].pods.push_back(
      {.name = "old", .uid = "o", .role = manifests::kExecutorRole, .cluster = "tokyo", .phase = PodPhase::kRunning});
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.state, JobState::kRunning);
  EXPECT_EQ(Reason(decision, "Ready"), "AllExecutorsReady");
  EXPECT_THAT(Removed(decision), UnorderedElementsAre("old"));
}

TEST_F(ResizeTest, ARuleMayMakeTheJobLeaveACluster) {
  seen_.wanted = 2;
  spec().failure_policy.rules = {{.name = "spot", .action = job::FailureAction::kReplaceCluster, .on_reasons = {"Evicted"}}};
  PodView& pod = seen_.clusters[0].pods[1];
  pod.phase = PodPhase::kFailed;
  pod.reason = "Evicted";
  const Decision decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 1);
  EXPECT_EQ(decision.persisted.counted_restarts, 1);
  ASSERT_TRUE(decision.persisted.avoided.contains("paris"));
  EXPECT_THAT(decision.persisted.avoided.at("paris"), HasSubstr("rule spot"));
  EXPECT_THAT(decision.create, IsEmpty());
}

TEST_F(ResizeTest, ResumedJobIsPlacedOnAllClusters) {
  spec().suspend = true;
  seen_.persisted.avoided["tokyo"] = "was left";
  seen_.clusters[0].pods.clear();
  Decision decision = Decide(seen_);
  EXPECT_EQ(decision.persisted.attempt, 1) << "placements are kept for an attempt";
  EXPECT_EQ(decision.persisted.counted_restarts, 0);
  EXPECT_TRUE(decision.persisted.avoided.empty());
  seen_.persisted = decision.persisted;
  EXPECT_EQ(Decide(seen_).persisted.attempt, 1) << "once";
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
