#include "operator/controller/transition_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "operator/controller/job_status.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using kubeapi::Condition;
using kubeapi::ConditionStatus;
using kubeapi::FusionJobStatus;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TwoClustersTest;

FusionJobStatus With(absl::string_view type, bool status, const std::string& reason, const std::string& message = "") {
  FusionJobStatus with;
  with.conditions = {{.type = std::string(type),
                      .status = status ? ConditionStatus::kTrue : ConditionStatus::kFalse,
                      .reason = reason,
                      .message = message}};
  return with;
}

// "!" before warnings.
std::vector<std::string> EventsNamed(const FusionJobStatus& before, const FusionJobStatus& after) {
  std::vector<std::string> reasons;
  for (const lifecycle::EventRecord& note : EventsForTransition(before, after))
    reasons.push_back(absl::StrCat(note.warning ? "!" : "", note.reason));
  return reasons;
}

TEST(TransitionEventsTest, OfAQueueTellsItsOwnWordsAndNoSuspension) {
  FusionJobStatus queued = With("Admitted", false, "Queued"), admitted = With("Admitted", true, "AdmittedByKueue");
  EXPECT_THAT(EventsNamed({}, queued), ElementsAre("Queued"));
  EXPECT_THAT(EventsNamed(queued, admitted), ElementsAre("AdmittedByKueue"));
  EXPECT_THAT(EventsNamed(admitted, With("Admitted", false, "EvictedByKueue")), ElementsAre("EvictedByKueue"));
  EXPECT_THAT(EventsNamed({}, With("Admitted", false, "KueueNotInstalled")), ElementsAre("!KueueNotInstalled"));
  EXPECT_THAT(EventsNamed({}, With("Suspended", true, "Queued")), IsEmpty());
  EXPECT_THAT(EventsNamed(With("Suspended", true, "Queued"), With("Suspended", false, "Resumed")), IsEmpty());
  EXPECT_THAT(EventsNamed(With("Suspended", true, "Suspended"), With("Suspended", false, "Resumed")), ElementsAre("Resumed"));
}

TEST(TransitionEventsTest, OfAConditionThatTurns) {
  const FusionJobStatus none;
  EXPECT_THAT(EventsNamed(none, With("Accepted", false, "InvalidSpec")), ElementsAre("!InvalidSpec"));
  EXPECT_THAT(EventsNamed(none, With("Accepted", true, "Valid")), IsEmpty());
  EXPECT_THAT(EventsNamed(none, With("Scheduled", true, "Scheduled")), ElementsAre("Scheduled"));
  EXPECT_THAT(EventsNamed(With("Scheduled", true, "Scheduled"), With("Scheduled", false, "QuotaExceeded")), ElementsAre("!QuotaExceeded"));
  EXPECT_THAT(EventsNamed(none, With("Scheduled", false, "InsufficientCapacity")), ElementsAre("InsufficientCapacity"));
  EXPECT_THAT(EventsNamed(With("Scheduled", false, "QuotaExceeded", "used 1"), With("Scheduled", false, "QuotaExceeded", "used 2")),
              IsEmpty())
      << "an event for each wording would be a flood";
  EXPECT_THAT(EventsNamed(none, With("Suspended", false, "NotSuspended")), IsEmpty());
  EXPECT_THAT(EventsNamed(With("Suspended", false, "NotSuspended"), With("Suspended", false, "Suspending")), ElementsAre("Suspending"));
  EXPECT_THAT(EventsNamed(With("Suspended", false, "Suspending"), With("Suspended", true, "Suspended")), ElementsAre("Suspended"));
  EXPECT_THAT(EventsNamed(With("Suspended", true, "Suspended"), With("Suspended", false, "NotSuspended")), ElementsAre("Resumed"));
  EXPECT_THAT(EventsNamed(none, With("Degraded", true, "ExecutorsNotReady")), ElementsAre("!DegradedExecutorsNotReady"));
  EXPECT_THAT(EventsNamed(none, With("Degraded", false, "NotDegraded")), IsEmpty());
  EXPECT_THAT(EventsNamed(With("Degraded", true, "ClusterLost"), With("Degraded", false, "NotDegraded")), ElementsAre("Recovered"));
  EXPECT_THAT(EventsNamed(none, With("Degraded", true, "ProbeFailed")), IsEmpty()) << "the broker's own event tells it";
  EXPECT_THAT(EventsNamed(With("Degraded", true, "Recovering"), With("Degraded", false, "NotDegraded")), IsEmpty());
  EXPECT_THAT(EventsNamed(With("Degraded", true, "NodeNotReady"), With("Degraded", true, "Recovering")), ElementsAre("Recovered"));
  EXPECT_THAT(EventsNamed(With("Degraded", true, "Recovering"), With("Degraded", true, "NodeNotReady")),
              ElementsAre("!DegradedNodeNotReady"));
  EXPECT_THAT(EventsNamed(With("Degraded", true, "OutOfMemory"), With("Degraded", true, "ExecutorsStarting")), IsEmpty());
  EXPECT_THAT(EventsNamed(none, With("Degraded", true, "ExecutorsStarting")), ElementsAre("!DegradedExecutorsStarting"));
  EXPECT_THAT(EventsNamed(none, With("Ready", false, "WaitingForExecutors")), IsEmpty());
  EXPECT_THAT(EventsNamed(none, With("Ready", false, "ImageNotAvailable")), ElementsAre("!ImageNotAvailable"));
  EXPECT_THAT(EventsNamed(With("Ready", false, "ImageNotAvailable", "a"), With("Ready", false, "ImageNotAvailable", "b")), IsEmpty());
  EXPECT_THAT(EventsNamed(none, With("Ready", false, "WaitingForAddress")), IsEmpty()) << "load balancers take their time";
  EXPECT_THAT(EventsNamed(none, With("Ready", false, "ExecutorsStarting")), IsEmpty()) << "nothing is wrong";
  EXPECT_THAT(EventsNamed(none, With("Ready", false, "QuotaExceeded")), IsEmpty()) << "Scheduled tells it";
  FusionJobStatus ran = With("Degraded", true, "NodeNotReady");
  ran.conditions.push_back(With("Ready", false, "NodeNotReady").conditions.front());
  EXPECT_THAT(EventsNamed(none, ran), ElementsAre("!DegradedNodeNotReady")) << "once";
  EXPECT_THAT(EventsNamed(none, With("CheckpointStale", true, "CheckpointsMissing")), ElementsAre("!CheckpointStale"));
  EXPECT_THAT(EventsNamed(none, With("Deleting", true, "CleaningUp")), ElementsAre("CleaningUp"));
  EXPECT_THAT(EventsNamed(With("Deleting", true, "CleaningUp"), With("Deleting", true, "ClusterUnreachable")),
              ElementsAre("!ClusterUnreachable"));
}

TEST(TransitionEventsTest, OfClustersThatGoAndCome) {
  const auto in_state = [](const std::string& state, int64_t epoch) {
    FusionJobStatus status;
    status.attempt = 1;
    status.cluster_statuses = {{.name = "tokyo", .state = state, .epoch = epoch}};
    return status;
  };
  EXPECT_THAT(EventsNamed(in_state("Connected", 1), in_state("Unreachable", 1)), ElementsAre("!ClusterUnreachable"));
  EXPECT_THAT(EventsNamed(in_state("Unreachable", 1), in_state("Lost", 1)), ElementsAre("!ClusterLost"));
  EXPECT_THAT(EventsNamed(in_state("Lost", 1), in_state("Connected", 1)), ElementsAre("ClusterBack"));
  EXPECT_THAT(EventsNamed(in_state("Lost", 1), in_state("Lost", 1)), IsEmpty());
  EXPECT_THAT(EventsNamed(in_state("Connected", 0), in_state("Lost", 0)), IsEmpty()) << "the job is elsewhere";
  const auto removed = [&](const std::string& message) {
    FusionJobStatus status = in_state("Removed", 1);
    status.cluster_statuses[0].message = message;
    return status;
  };
  EXPECT_THAT(EventsNamed(in_state("Connected", 1), removed(kRemoved)), ElementsAre("!ClusterRemoved"));
  EXPECT_THAT(EventsNamed(removed(kRemoved), removed(kRemovedAndLost)), ElementsAre("!ClusterLost"));
  EXPECT_THAT(EventsNamed(in_state("Lost", 1), removed(kRemovedAndLost)), ElementsAre("!ClusterRemoved")) << "that it is lost was told";
  EXPECT_THAT(EventsNamed(removed(kRemovedAndLost), in_state("Lost", 1)), IsEmpty()) << "it is registered again, and away as before";
  EXPECT_THAT(EventsNamed(removed(kRemoved), in_state("Connected", 1)), ElementsAre("ClusterBack"));
  EXPECT_THAT(EventsNamed({}, in_state("Connected", 1)), IsEmpty());
}

TEST(TransitionEventsTest, OfCheckpointsNowAndThen) {
  const auto saved = [](int64_t step, absl::Duration at) {
    FusionJobStatus status;
    status.checkpoint = {.uri = "c", .step = step, .time = absl::FromUnixSeconds(1'800'000'000) + at};
    return status;
  };
  EXPECT_THAT(EventsNamed({}, saved(10, absl::ZeroDuration())), ElementsAre("CheckpointSaved"));
  EXPECT_THAT(EventsNamed(saved(10, absl::ZeroDuration()), saved(20, absl::Seconds(20))), IsEmpty());
  EXPECT_THAT(EventsNamed(saved(10, absl::ZeroDuration()), saved(500, absl::Minutes(10))), ElementsAre("CheckpointSaved"));
}

// Events of a whole life, in order.
TEST_F(TwoClustersTest, EmitsEventPerTransition) {
  Submit2();
  SettleBoth();
  EXPECT_THAT(events_.reasons_, ElementsAre("Scheduled", "Ready"));
  events_.reasons_.clear();
  tokyo_->SetReachable(false);
  SettleBoth();
  tokyo_->SetLost(true);
  SettleBoth();
  tokyo_->SetReachable(true);
  SettleBoth();
  EXPECT_THAT(events_.reasons_, ElementsAre("ClusterUnreachable", "ClusterLost", "Recovered", "ClusterBack"));
  events_.reasons_.clear();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  SettleBoth();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  SettleBoth();
  EXPECT_THAT(events_.reasons_, ElementsAre("Suspending", "Suspended", "Resumed", "Ready"));
  events_.reasons_.clear();
  for (int i = 0; i < 5; ++i) SettleBoth();
  EXPECT_THAT(events_.reasons_, IsEmpty()) << "nothing happens";
}

}  // namespace
}  // namespace fusionllm::op::controller
