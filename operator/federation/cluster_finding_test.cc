#include "operator/federation/cluster_finding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/kubeapi/condition.h"
#include "lib/kubeapi/fusion_job_status.h"

namespace fusionllm::op::federation {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGeneration = 3;
const absl::Time kProbeTime = absl::FromUnixSeconds(1'700'000'000);

class ClusterFindingTest : public ::testing::Test {
 protected:
  void Set(const ClusterFinding& finding, const std::string& not_ours = "", absl::Time now = kProbeTime) {
    SetConditions(finding, not_ours, kGeneration, now, status_);
  }
  // "True Connected"; empty: there is no such condition.
  std::string Said(absl::string_view type) const {
    const kubeapi::Condition* const condition = kubeapi::FindCondition(status_.conditions, type);
    if (condition == nullptr) return "";
    return absl::StrCat(condition->status == kubeapi::ConditionStatus::kTrue ? "True " : "False ", condition->reason);
  }
  std::string Message(absl::string_view type) const {
    const kubeapi::Condition* const condition = kubeapi::FindCondition(status_.conditions, type);
    return condition == nullptr ? "" : condition->message;
  }
  static ClusterFinding Knowing(MemberFacts facts) {
    return {.identity = {.uid = "u1"}, .facts = std::make_shared<const MemberFacts>(std::move(facts))};
  }

  kubeapi::FusionClusterStatus status_;
};

TEST_F(ClusterFindingTest, WhoIsRefusedHasBadCredentialsAndWhoIsNotHeardHasNot) {
  struct Case {
    absl::Status connection;
    const char *credentials, *connected;
  };
  for (const Case& c : {Case{absl::OkStatus(), "True Valid", "True Connected"},
                        Case{absl::UnauthenticatedError("who are you"), "False Unauthorized", "False NotConnected"},
                        Case{absl::PermissionDeniedError("you may not"), "False Forbidden", "False NotConnected"},
                        Case{absl::UnavailableError("connection refused"), "True Valid", "False NotConnected"},
                        Case{absl::DeadlineExceededError("no answer"), "True Valid", "False NotConnected"}}) {
    status_ = {};
    Set(ClassifyConnection(c.connection));
    EXPECT_EQ(Said(kubeapi::kCredentialsValid), c.credentials) << c.connection;
    EXPECT_EQ(Said(kubeapi::kConnected), c.connected) << c.connection;
    EXPECT_EQ(Said(kubeapi::kReady), c.connected) << c.connection;
    EXPECT_EQ(Message(kubeapi::kReady), c.connection.ok() ? "Jobs may use it." : c.connection.message());
    for (const kubeapi::Condition& condition : status_.conditions) EXPECT_NE(condition.message, "") << condition.type;
    EXPECT_EQ(Said(kubeapi::kConflict), "") << "who it is, nobody has asked";
    for (const kubeapi::Condition& condition : status_.conditions) EXPECT_EQ(condition.observed_generation, kGeneration);
  }
}

TEST_F(ClusterFindingTest, MissingRightsAreNamedAndNotTooManyOfThem) {
  EXPECT_TRUE(CheckRights({}).ok());
  EXPECT_EQ(CheckRights({.missing = {"create pods in namespace team"}}),
            absl::PermissionDeniedError("may not create pods in namespace team"));
  MemberFacts facts;
  for (int i = 0; i < 8; ++i) facts.missing.push_back(absl::StrCat("do ", i));
  EXPECT_THAT(std::string(CheckRights(facts).message()), Not(HasSubstr("more")));
  facts.missing.push_back("do 8");
  facts.missing.push_back("do 9");
  EXPECT_EQ(CheckRights(facts).message(), "may not do 0, do 1, do 2, do 3, do 4, do 5, do 6, do 7, and 2 more");
}

TEST_F(ClusterFindingTest, AConflictIsTheReasonAndItsClusterIsNotNoted) {
  const absl::Status other = absl::FailedPreconditionError("it is the hub itself");
  Set({.connection = other, .identity = {.uid = "u1", .conflict = "SameCluster", .message = "it is the hub itself"}});
  EXPECT_EQ(Said(kubeapi::kConflict), "True SameCluster");
  EXPECT_EQ(Message(kubeapi::kConflict), "it is the hub itself");
  EXPECT_EQ(Said(kubeapi::kConnected), "False SameCluster");
  EXPECT_EQ(Said(kubeapi::kReady), "False SameCluster");
  EXPECT_EQ(Said(kubeapi::kCredentialsValid), "True Valid");
  EXPECT_EQ(status_.cluster_uid, std::nullopt);
}

TEST_F(ClusterFindingTest, WhoItIsStaysAsItWasFoundUntilItIsAskedAgain) {
  Set({.identity = {.uid = "u1"}});
  EXPECT_EQ(Said(kubeapi::kConflict), "False NoConflict");
  EXPECT_EQ(status_.cluster_uid, "u1");
  const absl::Status gone = absl::UnavailableError("connection refused");
  Set({.connection = gone});
  EXPECT_EQ(Said(kubeapi::kConflict), "False NoConflict");
  EXPECT_EQ(status_.cluster_uid, "u1") << "while it is out of reach";
  Set({.connection = gone, .identity = {.uid = "u2", .conflict = "ClusterChanged", .message = "another"}});
  EXPECT_EQ(status_.cluster_uid, "u1") << "it was u1 that was registered";
  Set({.connection = gone});
  EXPECT_EQ(Said(kubeapi::kConflict), "True ClusterChanged");
}

// Something of somebody else there is no reason against the cluster, and is taken back once it is gone, in reach or not.
TEST_F(ClusterFindingTest, ReportsConflictUntilResolved) {
  Set({.identity = {.uid = "u1"}}, "Pod team/train-0 is somebody else's");
  EXPECT_EQ(Said(kubeapi::kConflict), "True NotOurs");
  EXPECT_EQ(Message(kubeapi::kConflict), "Pod team/train-0 is somebody else's");
  EXPECT_EQ(Said(kubeapi::kReady), "True Connected");
  EXPECT_EQ(status_.cluster_uid, "u1");
  Set({.connection = absl::UnavailableError("no answer")});
  EXPECT_EQ(Said(kubeapi::kConflict), "False NoConflict");
  Set({.identity = {.uid = "u1", .conflict = "SameCluster", .message = "the hub"}}, "Pod team/train-0 is somebody else's");
  EXPECT_EQ(Said(kubeapi::kConflict), "True SameCluster") << "the worse of both";
}

TEST_F(ClusterFindingTest, WhatItDoesNotSayOfItselfIsNoCondition) {
  Set(Knowing({.healthy = true, .synced = true}));
  EXPECT_EQ(Said(kubeapi::kControlPlaneHealthy), "True Ready");
  EXPECT_EQ(Said(kubeapi::kClockSynced), "True Synced");
  for (const kubeapi::Condition& condition : status_.conditions) EXPECT_NE(condition.message, "") << condition.type;
  Set(Knowing({.healthy = false, .health = "etcd failed", .synced = false, .clock = "9 s behind"}));
  EXPECT_EQ(Said(kubeapi::kControlPlaneHealthy), "False NotReady");
  EXPECT_EQ(Message(kubeapi::kControlPlaneHealthy), "etcd failed");
  EXPECT_EQ(Said(kubeapi::kClockSynced), "False Skewed");
  EXPECT_EQ(Message(kubeapi::kClockSynced), "9 s behind");
  EXPECT_EQ(Said(kubeapi::kReady), "True Connected") << "neither stops jobs";
  Set(Knowing({}));
  EXPECT_EQ(Said(kubeapi::kControlPlaneHealthy), "");
  EXPECT_EQ(Said(kubeapi::kClockSynced), "");
}

TEST_F(ClusterFindingTest, ReportsOnlyManagedTokens) {
  Set({.token = TokenFinding{.managed = true, .renewed = true, .reason = "Renewed", .message = "until tomorrow"}});
  EXPECT_EQ(Said(kubeapi::kTokenRenewed), "True Renewed");
  EXPECT_EQ(Message(kubeapi::kTokenRenewed), "until tomorrow");
  Set({.token = TokenFinding{.managed = true, .reason = "RenewalFailed", .message = "it says no"}});
  EXPECT_EQ(Said(kubeapi::kTokenRenewed), "False RenewalFailed");
  EXPECT_EQ(Said(kubeapi::kReady), "True Connected") << "until it ends";
  Set({});
  EXPECT_EQ(Said(kubeapi::kTokenRenewed), "False RenewalFailed") << "that nobody has looked yet changes nothing";
  Set({.token = TokenFinding()});
  EXPECT_EQ(Said(kubeapi::kTokenRenewed), "");
}

TEST_F(ClusterFindingTest, TheTimeOfAConditionIsThatOfItsLastChange) {
  Set({.identity = {.uid = "u1"}});
  const kubeapi::FusionClusterStatus before = status_;
  Set({.identity = {.uid = "u1"}}, "", kProbeTime + absl::Minutes(5));
  EXPECT_EQ(status_, before) << "nothing to write";
  Set(ClassifyConnection(absl::UnavailableError("no answer")), "", kProbeTime + absl::Minutes(9));
  EXPECT_EQ(kubeapi::FindCondition(status_.conditions, kubeapi::kReady)->last_transition_time, kProbeTime + absl::Minutes(9));
  EXPECT_EQ(kubeapi::FindCondition(status_.conditions, kubeapi::kCredentialsValid)->last_transition_time, kProbeTime);
}

}  // namespace
}  // namespace fusionllm::op::federation
