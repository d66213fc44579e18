// A job whose spec is edited into one that the operator cannot make sense of, or has a field that only a newer operator knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TwoClustersTest;

class WrongSpecTest : public TwoClustersTest {
 protected:
  void Train() {
    Submit2();
    SettleBoth();
    ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
    events_.reasons_.clear();
  }
  void Edit(json spec) {
    spec["training"]["stepz"] = 3;
    Patch(manifests::kFusionJobs, "train", {{"spec", spec}});
    SettleBoth();
  }
  void Mend() {
    Patch(manifests::kFusionJobs, "train", {{"spec", {{"training", {{"stepz", nullptr}}}}}});
    SettleBoth();
  }
  std::vector<std::string> Tombstones() {
    std::vector<std::string> clusters;
    const json objects = json::parse(looking_->List(manifests::kConfigMaps, testing::kOperatorNamespace).value());
    for (const json& object : objects["items"]) clusters.push_back(object["data"]["cluster"]);
    return clusters;
  }
};

TEST_F(WrongSpecTest, AJobAtWorkStaysAsItIsAndSaysSo) {
  Train();
  const json before = Job()["status"];
  const auto objects = tokyo_server_.objects();
  const std::vector<std::string> pods = PodNames();
  Edit({{"executors", {{"replicas", 3}}}});
  EXPECT_EQ(Condition("Accepted"), "False InvalidSpec");
  EXPECT_THAT(ConditionObject("Accepted")["message"], HasSubstr("spec.training.stepz"));
  EXPECT_THAT(ConditionObject("Accepted")["message"], HasSubstr("stays as it is by the spec before"));
  EXPECT_THAT(events_.reasons_, ::testing::ElementsAre("InvalidSpec"));
  EXPECT_EQ(Condition("Failed"), "none");
  EXPECT_EQ(Job()["status"]["state"], before["state"]);
  EXPECT_EQ(Job()["status"]["executors"], before["executors"]);
  EXPECT_EQ(Job()["status"]["observedGeneration"], Job()["metadata"]["generation"]);
  EXPECT_EQ(PodNames(), pods);
  EXPECT_EQ(tokyo_server_.objects(), objects);
}

TEST_F(WrongSpecTest, AndGoesOnWhenItIsMended) {
  Train();
  Edit({});
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kPods, {"default", "train-tokyo-0-r0"}, {.grace_period_seconds = 0}).ok());
  SettleBoth();
  EXPECT_EQ(TokyoPod("train-tokyo-0-r0"), json::object()) << "how, only a spec says";
  Mend();
  EXPECT_EQ(Condition("Accepted"), "True Valid");
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_EQ(TokyoPod("train-tokyo-0-r0")["metadata"]["name"], "train-tokyo-0-r0");
}

TEST_F(WrongSpecTest, ItIsDeletedFromAllClusters) {
  Train();
  Edit({});
  tokyo_->SetReachable(false);
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  ASSERT_FALSE(Job().is_null()) << "something is left in Tokyo";
  EXPECT_EQ(Condition("Deleting"), "True ClusterUnreachable");
  tokyo_->SetReachable(true);
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(server_.objects(), Not(Contains(HasSubstr("train"))));
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
}

TEST_F(WrongSpecTest, WhatIsOwedOfItIsRemembered) {
  Train();
  Edit({{"forceDeleteAfterSeconds", 3'600}});
  tokyo_->SetReachable(false);
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  clock_.Advance(absl::Minutes(50));
  SettleBoth();
  EXPECT_FALSE(Job().is_null()) << "it says so itself";
  clock_.Advance(absl::Minutes(20));
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(Tombstones(), ::testing::ElementsAre("tokyo"));
}

TEST_F(WrongSpecTest, ItCanBeSuspendedWithTheSameEdit) {
  Train();
  Edit({{"suspend", true}});
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  EXPECT_EQ(Condition("Accepted"), "False InvalidSpec");
  EXPECT_THAT(PodNames(), IsEmpty());
  Edit({{"suspend", false}});
  EXPECT_EQ(Job()["status"]["state"], "Suspended") << "by what it should go on is not known";
  EXPECT_EQ(Condition("Failed"), "none");
  Mend();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

// As an API server with older definitions would take it.
TEST_F(WrongSpecTest, InvalidPodNameIsReportedWithRule) {
  json job = testing::JobObject();
  job["metadata"]["name"] = "gpt2.tiny";
  Submit(job);
  (void)reconciler_->Reconcile({"", "default", "gpt2.tiny"}, {});
  const json status = json::parse(looking_->Get(manifests::kFusionJobs, {"default", "gpt2.tiny"}).value())["status"];
  EXPECT_EQ(status["state"], "Failed") << status.dump(1);
  EXPECT_EQ(status["reason"], "InvalidSpec");
  EXPECT_THAT(status["conditions"].dump(), HasSubstr("metadata.name: must be at most 37 lower-case letters, digits and '-'"));
  EXPECT_THAT(events_.reasons_, ::testing::ElementsAre("InvalidSpec"));
  EXPECT_THAT(PodNames(), IsEmpty());
}

TEST_F(WrongSpecTest, OneThatNeverBeganHasNotFailedWhileItIsSuspended) {
  json job = testing::JobObject();
  job["spec"]["network"] = {{"mode", "LoadBalancer"}};
  job["spec"]["training"]["stepz"] = 3;
  job["spec"]["suspend"] = true;
  Submit(job);
  SettleBoth();
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  EXPECT_EQ(Job()["status"]["reason"], "InvalidSpec");
  EXPECT_EQ(Condition("Accepted"), "False InvalidSpec");
  EXPECT_EQ(Condition("Failed"), "none");
  EXPECT_THAT(events_.reasons_, Contains("InvalidSpec"));
  EXPECT_THAT(PodNames(), IsEmpty());
  Mend();
  EXPECT_EQ(Condition("Accepted"), "True Valid");
  EXPECT_EQ(Job()["status"]["state"], "Suspended");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  SettleBoth();
  EXPECT_EQ(Job()["status"]["state"], "Running");
}

TEST_F(WrongSpecTest, OneThatIsCompleteStaysSoAndIsCleanedUp) {
  Train();
  EndBroker(0, 0, R"({"step":100,"steps":100})");
  SettleBoth();
  ASSERT_EQ(Condition("Complete"), "True Completed");
  ASSERT_THAT(server_.objects(), Contains(HasSubstr("train-anchor")));
  Edit({{"cleanPodPolicy", "All"}});
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_EQ(Condition("Failed"), "none");
  EXPECT_EQ(Condition("Accepted"), "False InvalidSpec");
  EXPECT_THAT(server_.objects(), Not(Contains(HasSubstr("train-anchor"))));
  Edit({{"ttlSecondsAfterFinished", 60}});
  clock_.Advance(absl::Seconds(61));
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
}

TEST_F(WrongSpecTest, OneThatNeverBeganHasFailedAndGoesWhenItsTimeIsOver) {
  json job = testing::JobObject();
  job["spec"]["training"]["stepz"] = 3;
  job["spec"]["ttlSecondsAfterFinished"] = 60;
  Submit(job);
  SettleBoth();
  ASSERT_EQ(Condition("Failed"), "True InvalidSpec");
  EXPECT_TRUE(Job()["status"].contains("completionTime"));
  clock_.Advance(absl::Seconds(61));
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
}

}  // namespace
}  // namespace fusionllm::op::controller
