#include "lib/kubeapi/condition.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kubeapi/fusion_job_status.h"

namespace fusionllm::kubeapi {
namespace {

using ::testing::SizeIs;

absl::Time At(int64_t second) { return absl::FromUnixSeconds(second); }

Condition Make(absl::string_view type, ConditionStatus status, const std::string& reason = "Because", const std::string& message = "m") {
  return {.type = std::string(type), .status = status, .reason = reason, .message = message};
}

TEST(ConditionTest, TheTransitionTimeMovesOnlyWithTheStatus) {
  std::vector<Condition> conditions;
  EXPECT_TRUE(SetCondition(conditions, Make(kReady, ConditionStatus::kFalse), At(100)));
  EXPECT_TRUE(SetCondition(conditions, Make(kReady, ConditionStatus::kFalse, "Other"), At(200)));
  EXPECT_EQ(FindCondition(conditions, kReady)->last_transition_time, At(100));
  EXPECT_EQ(FindCondition(conditions, kReady)->reason, "Other");
  EXPECT_TRUE(SetCondition(conditions, Make(kReady, ConditionStatus::kTrue, "Other"), At(300)));
  EXPECT_EQ(FindCondition(conditions, kReady)->last_transition_time, At(300));
  EXPECT_THAT(conditions, SizeIs(1));
}

TEST(ConditionTest, NothingChangesWhenNothingDiffers) {
  std::vector<Condition> conditions;
  EXPECT_TRUE(SetCondition(conditions, Make(kReady, ConditionStatus::kTrue), At(100)));
  EXPECT_FALSE(SetCondition(conditions, Make(kReady, ConditionStatus::kTrue), At(200)));
  Condition later = Make(kReady, ConditionStatus::kTrue);
  later.observed_generation = 2;
  EXPECT_TRUE(SetCondition(conditions, later, At(200)));
}

TEST(ConditionTest, TimesAreWholeSecondsAsTheApiServerKeepsThem) {
  std::vector<Condition> conditions;
  SetCondition(conditions, Make(kReady, ConditionStatus::kTrue), At(100) + absl::Milliseconds(900));
  EXPECT_EQ(conditions[0].last_transition_time, At(100));
}

TEST(ConditionTest, AJobEndsOnce) {
  std::vector<Condition> conditions;
  EXPECT_TRUE(SetCondition(conditions, Make(kFailed, ConditionStatus::kFalse), At(1)));
  EXPECT_FALSE(IsFinished(conditions));
  EXPECT_TRUE(SetCondition(conditions, Make(kComplete, ConditionStatus::kTrue, "Trained"), At(2)));
  EXPECT_TRUE(IsFinished(conditions));
  EXPECT_FALSE(SetCondition(conditions, Make(kComplete, ConditionStatus::kFalse), At(3)));
  EXPECT_FALSE(SetCondition(conditions, Make(kComplete, ConditionStatus::kTrue, "Twice"), At(3)));
  EXPECT_FALSE(SetCondition(conditions, Make(kFailed, ConditionStatus::kTrue), At(3)));
  EXPECT_EQ(FindCondition(conditions, kComplete)->reason, "Trained");
  EXPECT_FALSE(IsTrue(conditions, kFailed));
  EXPECT_TRUE(SetCondition(conditions, Make(kReady, ConditionStatus::kFalse), At(4)));
}

TEST(ConditionTest, WhatTheApiServerWouldRefuseIsMadeToFit) {
  std::vector<Condition> conditions;
  std::string message(kMaxConditionMessage - 1, 'x');
  SetCondition(conditions, Make(kReady, ConditionStatus::kTrue, "", message + "\xC3\xA9"), At(1));
  EXPECT_EQ(conditions[0].reason, "Ready");
  EXPECT_EQ(conditions[0].message, message) << "a character is kept whole or not at all";
}

struct Summary {
  std::vector<Condition> conditions;
  const char* reason;
};

TEST(SummaryTest, TheReasonIsThatOfTheConditionThatMattersMost) {
  const auto yes = ConditionStatus::kTrue, no = ConditionStatus::kFalse;
  const Summary cases[] = {
      {{}, ""},
      {{Make(kAccepted, yes)}, ""},
      {{Make(kAccepted, no, "InvalidSpec")}, "InvalidSpec"},
      {{Make(kScheduled, yes, "Sent")}, "Sent"},
      {{Make(kReady, no, "ImageNotAvailable"), Make(kScheduled, yes, "Sent")}, "ImageNotAvailable"},
      {{Make(kReady, no, "ExecutorsStarting"), Make(kScheduled, yes, "Sent")}, "ExecutorsStarting"},
      {{Make(kReady, no, "InsufficientCapacity"), Make(kScheduled, no, "InsufficientCapacity")}, "InsufficientCapacity"},
      {{Make(kReady, no, "ExecutorsStarting"), Make(kRestarting, yes, "BrokerFailed")}, "BrokerFailed"},
      {{Make(kReady, no, "ObjectMissing"), Make(kRestarting, yes, "BrokerFailed")}, "ObjectMissing"},
      {{Make(kReady, no, "NodeNotReady"), Make(kDegraded, yes, "NodeNotReady")}, "NodeNotReady"},
      {{Make(kReady, yes), Make(kJobDeleting, yes, "CleaningUp")}, "CleaningUp"},
      {{Make(kScheduled, yes), Make(kReady, yes, "AllUp")}, "AllUp"},
      {{Make(kReady, yes), Make(kDegraded, yes, "ClusterLost")}, "ClusterLost"},
      {{Make(kReady, yes), Make(kRestarting, yes, "OOMKilled")}, "OOMKilled"},
      {{Make(kSuspended, yes, "Suspended"), Make(kScheduled, yes)}, "Suspended"},
      {{Make(kSuspended, yes), Make(kComplete, yes, "Trained")}, "Trained"},
      {{Make(kReady, yes), Make(kFailed, yes, "DeadlineExceeded")}, "DeadlineExceeded"},
  };
  for (const Summary& c : cases) {
    FusionJobStatus status;
    status.conditions = c.conditions;
    status.reason = "of before";
    Summarize(4, status);
    EXPECT_EQ(status.reason, c.reason);
  }
}

TEST(SummaryTest, CountsAndTimesAreReadyToPrint) {
  FusionJobStatus status;
  status.ready_replicas = 3;
  status.cluster_statuses = {{.name = "paris", .active = 2, .ready = 2}, {.name = "tokyo", .active = 2, .ready = 1}, {.name = "lima"}};
  status.trainer_status = {.step = 50, .steps = 200, .progress_percentage = 25};
  const std::pair<int64_t, const char*> times[] = {{0, "0s"}, {59, "59s"}, {61, "1m1s"}, {3 * 3600 + 125, "3h2m"}, {90000, "1d1h"}};
  for (const auto& [seconds, text] : times) {
    status.trainer_status->estimated_remaining_seconds = seconds;
    Summarize(4, status);
    EXPECT_EQ(status.trainer_status->eta, text);
  }
  EXPECT_EQ(status.executors, "3/4");
  EXPECT_EQ(status.clusters, "1/3");
  EXPECT_EQ(status.trainer_status->progress, "25%");
  SetCondition(status.conditions, Make(kFailed, ConditionStatus::kTrue), At(1));
  Summarize(4, status);
  EXPECT_EQ(status.trainer_status->eta, "") << "a finished job has nothing left to wait for";
}

TEST(SummaryTest, AJobThatIsOverTellsWhatRan) {
  const auto ends = [](absl::string_view end) {
    FusionJobStatus status;
    status.ready_replicas = 1;
    status.cluster_statuses = {{.name = "paris", .active = 2, .ready = 1}};
    Summarize(2, status);
    SetCondition(status.conditions, Make(end, ConditionStatus::kTrue), At(1));
    status.ready_replicas = 0;
    status.cluster_statuses = {{.name = "paris"}};
    for (const int64_t wanted : {2, 7}) Summarize(wanted, status);  // the second: its placement is gone
    return status.executors + " " + status.clusters;
  };
  EXPECT_EQ(ends(kComplete), "2/2 1/1");
  EXPECT_EQ(ends(kFailed), "1/2 0/1");
  FusionJobStatus at_once;
  SetCondition(at_once.conditions, Make(kComplete, ConditionStatus::kTrue), At(1));
  Summarize(2, at_once);
  EXPECT_EQ(at_once.executors, "2/2") << "nothing was told before";
}

TEST(SummaryTest, ClustersOfEarlierAttemptsAreNotCounted) {
  FusionJobStatus status;
  status.cluster_statuses = {{.name = "paris", .active = 2, .ready = 2, .epoch = 1}, {.name = "tokyo", .epoch = 0}};
  Summarize(2, status);
  EXPECT_EQ(status.clusters, "1/1");
}

}  // namespace
}  // namespace fusionllm::kubeapi
