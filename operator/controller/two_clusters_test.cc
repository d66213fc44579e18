// A job over a hub and a member, each an API server in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/orphan_collector.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TwoClustersTest;

TEST_F(TwoClustersTest, ExecutorsGoToBothAndDialTheHub) {
  Submit2();
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0"));
  const json pod = TokyoPod("train-tokyo-0-r0");
  ASSERT_TRUE(pod.contains("spec")) << pod;
  const std::vector<std::string> command = pod["spec"]["containers"][0]["command"];
  EXPECT_THAT(command, Contains("203.0.113.5:7000"));
  const json secret = json::parse(tokyo_client_->Get(manifests::kSecrets, {"default", "train-executors"}).value());
  EXPECT_TRUE(secret["data"].contains("tokyo-0.key"));
  EXPECT_FALSE(secret["data"].contains("local-0.key")) << "each cluster has the keys of its own executors";
  EXPECT_FALSE(tokyo_client_->Get(manifests::kSecrets, {"default", "train-authority"}).ok()) << "the authority stays on the hub";
  EXPECT_EQ(Job()["status"]["executors"], "2/2");
  EXPECT_EQ(Job()["status"]["clusters"], "2/2");
  EXPECT_THAT(enqueued_, Contains("tokyo"));
  const auto requests = server_.requests();
  const auto reads = std::count_if(requests.begin(), requests.end(), [](const auto& request) {
    return request.verb == "get" && request.target.find("secrets/train-authority") != std::string::npos;
  });
  EXPECT_EQ(reads, 2) << "by the part of the hub, which waited for its load balancer once";
}

TEST_F(TwoClustersTest, TheFinalizerIsThereBeforeAnythingIsMadeAndGoesLast) {
  auto writes = std::make_shared<std::vector<std::string>>();  // that of the operator and the test, in both clusters
  const auto note = [&](const std::string& cluster) {
    return [writes, cluster](const kube::testing::RecordedRequest& request) {
      if (request.verb == "get" || request.verb == "list" || request.target.find("dryRun") != std::string::npos) return;
      writes->push_back(absl::StrCat(cluster, " ", request.verb, " ", request.target.substr(0, request.target.find('?'))));
    };
  };
  server_.OnRequest(note("hub"));
  tokyo_server_.OnRequest(note("tokyo"));
  const std::string job = "/apis/fusionllm.io/v1alpha1/namespaces/default/fusionjobs";
  const auto at = [&](const std::string& write) { return std::find(writes->begin(), writes->end(), write) - writes->begin(); };
  Submit2();
  SettleBoth();
  ASSERT_GT(writes->size(), 10);
  EXPECT_EQ(writes->at(0), absl::StrCat("hub create ", job));
  EXPECT_EQ(writes->at(1), absl::StrCat("hub patch ", job, "/train")) << "the finalizer";
  const auto first_in_tokyo = std::find_if(writes->begin(), writes->end(), [](const auto& write) { return write.starts_with("tokyo"); });
  ASSERT_NE(first_in_tokyo, writes->end());
  EXPECT_GT(first_in_tokyo - writes->begin(), at(absl::StrCat("hub apply ", job, "/train/status"))) << "which names Tokyo";
  writes->clear();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  ASSERT_TRUE(Job().is_null());
  EXPECT_EQ(writes->back(), absl::StrCat("hub patch ", job, "/train"));
  EXPECT_THAT(*writes, Contains("tokyo delete /api/v1/namespaces/default/configmaps/train-anchor"));
}

TEST_F(TwoClustersTest, AMemberDoesNothingThatTheStatusDoesNotSay) {
  Submit2();
  ReconcileTokyo();
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train")))) << "the hub is not prepared";
  SettleBoth();
  EndBroker(0, 1, R"({"error":"x"})");
  ReconcileTokyo();  // before the hub's part has written the new attempt
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").at("metadata").contains("deletionTimestamp"));
  SettleBoth();
  EXPECT_TRUE(TokyoPod("train-tokyo-0-r1").contains("spec"));
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
}

// A member that hangs would hold up the job in all its other clusters.
TEST_F(TwoClustersTest, TheHubsPartAsksNothingOfAMember) {
  const auto expect_silence = [&](const std::string& when) {
    const int before = tokyo_transport_->requests();
    for (int i = 0; i < 5; ++i) {
      (void)Reconcile();
      SimulateCluster();
    }
    EXPECT_EQ(tokyo_transport_->requests(), before) << when;
    SettleBoth();
    EXPECT_GT(tokyo_transport_->requests(), before) << when << " there is something to do";
  };
  Submit2();
  expect_silence("when it is prepared");
  EndBroker(0, 1, R"({"error":"x"})");
  expect_silence("when it is restarted");
  ASSERT_EQ(Job()["status"]["attempt"], 1);
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  expect_silence("when it is suspended");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}}}});
  expect_silence("when it is resumed");
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  expect_silence("when it is deleted");
  EXPECT_TRUE(Job().is_null());
}

TEST_F(TwoClustersTest, NewClusterDoesNotMoveRunningJob) {
  members_.remote_.clear();
  Submit();
  Settle();
  members_.remote_ = {tokyo_};
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0", "train-local-1-r0"));
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
}

// As another hub that shares Tokyo makes it for a job of the same name.
TEST_F(TwoClustersTest, ReportsConflictWithJobOfAnotherHub) {
  const manifests::JobIdentity theirs{.name = "train", .ns = "default", .uid = "theirs", .origin = "hub", .hub = "another-hub"};
  ASSERT_TRUE(tokyo_client_->Create(manifests::kConfigMaps, "default", manifests::OwnerConfigMapObject(theirs, "tokyo").dump()).ok());
  const std::string before = tokyo_client_->Get(manifests::kConfigMaps, {"default", "train-anchor"}).value();
  Submit2();
  SettleBoth();
  EXPECT_EQ(tokyo_client_->Get(manifests::kConfigMaps, {"default", "train-anchor"}).value(), before);
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  EXPECT_EQ(Condition("Ready"), "False Conflict");
  EXPECT_THAT(std::string(ConditionObject("Ready")["message"]),
              HasSubstr("Cluster tokyo: ConfigMap train-anchor in namespace default exists already"));
  EXPECT_EQ(Condition("Scheduled"), "False Conflict");
  EXPECT_THAT(reconciler_->conflicts().In("tokyo"), HasSubstr("train-anchor"));
  const kube::ReconcileResult again = ReconcileTokyo();
  EXPECT_TRUE(again.status.ok()) << again.status;
  EXPECT_LE(again.after, absl::Seconds(15)) << "nobody tells when it is gone";
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kConfigMaps, {"default", "train-anchor"}).ok());
  clock_.Advance(absl::Seconds(15));
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_EQ(reconciler_->conflicts().In("tokyo"), "");
}

TEST_F(TwoClustersTest, DeletionCleansBothAndWaitsForAMemberThatIsAwayNoLongerThanItMust) {
  Submit2();
  SettleBoth();
  tokyo_->SetReachable(false);
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  ASSERT_FALSE(Job().is_null()) << "something is left in Tokyo";
  EXPECT_EQ(Condition("Deleting"), "True ClusterUnreachable");
  tokyo_->SetReachable(true);
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
}

// What is left in Tokyo, and the collector that sees to it as soon as Tokyo is back.
class LeftBehindTest : public TwoClustersTest {
 protected:
  json TombstoneObjects() { return json::parse(looking_->List(manifests::kConfigMaps, testing::kOperatorNamespace).value())["items"]; }
  // Nothing is remembered, and Tokyo's cache is empty.
  void RestartWhileTokyoIsAway() {
    Restart();
    collector_.reset();
    tokyo_->SetReachable(false);
    tokyo_->SetBlind(true);
  }
  void TokyoIsBack() {
    tokyo_->SetReachable(true);
    tokyo_->SetBlind(false);
  }
  kube::ReconcileResult Collect() {
    if (collector_ == nullptr) {
      collector_ = std::make_unique<OrphanCollector>(
          *looking_, testing::kHubUid, *tombstones_, [](const auto&, const auto&) { return false; }, nullptr);
    }
    return collector_->Collect(*members_.remote_[0], {});
  }
  bool TokyoIsClean() {
    for (const std::string& object : tokyo_server_.objects()) {
      if (object.find("train") != std::string::npos) return false;
    }
    return true;
  }
  std::unique_ptr<OrphanCollector> collector_;
};

TEST_F(LeftBehindTest, CollectsLeftoversOfUnreachableClusterLater) {
  Submit2();
  SettleBoth();
  RestartWhileTokyoIsAway();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  ASSERT_FALSE(Job().is_null()) << "the job's status says that something may be in Tokyo, although no cache does";
  EXPECT_EQ(Condition("Deleting"), "True ClusterUnreachable");
  clock_.Advance(absl::Minutes(10));
  SettleBoth();
  EXPECT_TRUE(Job().is_null()) << "it does not wait for ever";
  ASSERT_EQ(TombstoneObjects().size(), 1);
  EXPECT_EQ(TombstoneObjects()[0]["data"]["cluster"], "tokyo");
  RestartWhileTokyoIsAway();
  Collect();
  EXPECT_EQ(TombstoneObjects().size(), 1);
  TokyoIsBack();
  EXPECT_FALSE(TokyoIsClean());
  EXPECT_TRUE(Collect().status.ok());
  EXPECT_TRUE(TokyoIsClean());
  EXPECT_TRUE(Collect().status.ok());
  EXPECT_EQ(TombstoneObjects().size(), 0);
}

TEST_F(LeftBehindTest, AMemberWhoseFusionClusterIsGoneHoldsUpNoLonger) {
  Submit2();
  SettleBoth();
  members_.remote_.clear();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  EXPECT_FALSE(Job().is_null());
  clock_.Advance(absl::Minutes(10));
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_EQ(TombstoneObjects().size(), 1);
}

TEST_F(LeftBehindTest, ANewAttemptWaitsForAMemberWithoutAConnectionUntilItIsLost) {
  Submit2();
  SettleBoth();
  Restart();
  members_.remote_.clear();  // as with a Secret that is refused, or without its FusionCluster
  EndBroker(0, 1, R"({"error":"x"})");
  for (int i = 0; i < 5; ++i) {
    (void)Reconcile();
    SimulateCluster();
  }
  EXPECT_EQ(Job()["status"]["attempt"], 1);
  EXPECT_THAT(PodNames(), Not(Contains("train-broker-r1"))) << "train-tokyo-0-r0 may be at work with the old checkpoint";
  EXPECT_THAT(ConditionObject("Ready")["message"], HasSubstr("tokyo"));
  members_.lost_.insert("tokyo");
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r1", "train-local-0-r1", "train-local-1-r1"));
}

// Somebody else's finalizer holds an object of a job, on the hub and in Tokyo.
TEST_F(LeftBehindTest, WhatIsStuckIsLetGoWhenSomebodySaysSoAndCollectedLater) {
  Submit2();
  SettleBoth();
  const json held = {{"metadata", {{"finalizers", {"example.org/held"}}}}};
  const json free = {{"metadata", {{"finalizers", nullptr}}}};
  const kube::ObjectKey pod{"default", "train-tokyo-0-r0"};
  const auto set = [&](const json& patch) {
    EXPECT_TRUE(tokyo_client_->Patch(manifests::kPods, pod, kube::PatchType::kMerge, patch.dump()).ok());
    Patch(manifests::kConfigMaps, "train-anchor", patch);
  };
  set(held);
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  ASSERT_FALSE(Job().is_null());
  EXPECT_EQ(Condition("Deleting"), "True CleaningUp");
  EXPECT_THAT(ConditionObject("Deleting")["message"],
              HasSubstr("Waiting for objects in the hub, tokyo: ConfigMap train-anchor of the hub, Pod train-tokyo-0-r0"));
  Patch(manifests::kFusionJobs, "train", {{"metadata", {{"annotations", {{"fusionllm.io/force-delete", "true"}}}}}});
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(events_.reasons_, Contains("CleanupIncomplete"));
  ASSERT_EQ(TombstoneObjects().size(), 2);
  Collect();
  EXPECT_EQ(TombstoneObjects().size(), 2);
  set(free);
  PlayTokyo();
  SimulateCluster();
  EXPECT_TRUE(Collect().status.ok());
  EXPECT_TRUE(TokyoIsClean());
  EXPECT_EQ(TombstoneObjects().size(), 1);
  EXPECT_EQ(TombstoneObjects()[0]["data"]["cluster"], hub_->name()) << "as whoever collects there calls it";
}

TEST_F(LeftBehindTest, PreservesObjectsOfUnreachableCluster) {
  Submit2();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"preserveResourcesOnDeletion", true}}}});
  SettleBoth();
  RestartWhileTokyoIsAway();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  clock_.Advance(absl::Minutes(10));
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(PodNames(), Contains("train-broker-r0"));
  TokyoIsBack();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Collect().status.ok());
  EXPECT_TRUE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  EXPECT_EQ(TombstoneObjects().size(), 0);
}

TEST_F(TwoClustersTest, WhatIsToBePreservedIsMarkedInAllClusters) {
  Submit2();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"preserveResourcesOnDeletion", true}}}});
  SettleBoth();
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_TRUE(member_->OwnerConfigMaps().at(0).preserved);
  EXPECT_TRUE(tokyo_->OwnerConfigMaps().at(0).preserved);
}

TEST_F(TwoClustersTest, ClustersThatAJobDoesNotUseAreNotInItsStatus) {
  json job = testing::JobObject();
  job["spec"]["placement"] = {{"clusters", {{{"name", "local"}, {"min", 2}}}}};
  Submit(job);
  SettleBoth();
  ASSERT_EQ(Job()["status"]["clusterStatuses"].size(), 1);
  EXPECT_EQ(Job()["status"]["clusterStatuses"][0]["name"], "local");
  EXPECT_EQ(Job()["status"]["clusterStatuses"][0]["local"], true);
  EXPECT_EQ(Job()["status"]["clusters"], "1/1");
}

TEST_F(TwoClustersTest, AMemberGetsNothingBeforeTheStatusNamesIt) {
  Submit2();
  ASSERT_TRUE(Reconcile().status.ok());  // the hub is prepared
  Patch(manifests::kFusionJobs, "train", {{"status", {{"clusterStatuses", json::array()}}}}, "status");
  ReconcileTokyo();
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
  ASSERT_TRUE(Reconcile().status.ok());
  ReconcileTokyo();
  PlayTokyo();  // the executor's load balancer
  ReconcileTokyo();
  EXPECT_THAT(tokyo_server_.objects(), Contains(HasSubstr("train-tokyo-0-r0")));
}

// A cluster that is away for so long that it counts as lost.
TEST_F(TwoClustersTest, ALostClusterDoesNotHoldUpTheNextAttempt) {
  Submit2();
  SettleBoth();
  EndBroker(0, 1, R"({"error":"x"})");
  tokyo_->SetReachable(false);
  SettleBoth();
  EXPECT_EQ(Job()["status"]["state"], "Restarting") << "for now it may come back";
  tokyo_->SetLost(true);
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r1", "train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Job()["status"]["executors"], "2/2");
  EXPECT_EQ(Job()["status"]["clusters"], "1/1");
  tokyo_->SetReachable(true);
  SettleBoth();
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec")) << "what it still ran is of an attempt that is over";
}

TEST_F(TwoClustersTest, ExecutorsOfALostClusterAreNotReady) {
  Submit2();
  SettleBoth();
  tokyo_->SetReachable(false);
  SettleBoth();
  EXPECT_EQ(Job()["status"]["executors"], "2/2") << "suspected, no more";
  tokyo_->SetLost(true);
  SettleBoth();
  EXPECT_EQ(Job()["status"]["executors"], "1/2");
  EXPECT_EQ(Condition("Degraded"), "True ClusterLost");
  EXPECT_EQ(Job()["status"]["restarts"], 0) << "whether the run goes on is the broker's to say";
  tokyo_->SetReachable(true);
  SettleBoth();
  EXPECT_EQ(Condition("Degraded"), "False NotDegraded");
}

TEST_F(TwoClustersTest, AJobThatHasNotBegunGoesElsewhereWhenItsClusterIsLost) {
  Submit2();
  ASSERT_TRUE(Reconcile().status.ok());  // placed in both
  tokyo_->SetReachable(false);
  tokyo_->SetLost(true);
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r1", "train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Job()["status"]["restartsCountTowardsMax"], 0);
}

TEST_F(TwoClustersTest, ARuleMayMoveAJobFromALostCluster) {
  Submit2();
  Patch(manifests::kFusionJobs, "train",
        {{"spec", {{"failurePolicy", {{"rules", {{{"name", "move"}, {"action", "ReplaceCluster"}, {"onReasons", {"ClusterLost"}}}}}}}}}});
  SettleBoth();
  tokyo_->SetReachable(false);
  tokyo_->SetLost(true);
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r1", "train-local-0-r1", "train-local-1-r1"));
  EXPECT_EQ(Job()["status"]["restartsCountTowardsMax"], 1);
}

// Nothing is decided on what does not show one's own writes.
TEST_F(TwoClustersTest, ACacheThatTrailsIsWaitedFor) {
  Submit2();
  for (const bool hub : {true, false}) {
    (hub ? member_.get() : tokyo_.get())->SetBehind(true);
    const auto before = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job());
    if (hub) {
      EXPECT_LT(Reconcile().after, absl::Seconds(1));
    }
    EXPECT_LT(ReconcileTokyo().after, absl::Seconds(1));
    EXPECT_EQ(std::make_tuple(server_.objects(), tokyo_server_.objects(), Job()), before);
    (hub ? member_.get() : tokyo_.get())->SetBehind(false);
    if (hub) SettleBoth();
  }
}

// A member of which nothing is known yet holds up no job that has nothing there.
TEST_F(TwoClustersTest, AJobWhoseClustersAreKnownDoesNotWait) {
  json job = testing::JobObject();
  job["spec"]["placement"] = {{"clusters", {{{"name", "local"}, {"min", 2}}}}};
  Submit(job);
  members_.connecting_ = {{"tokyo", absl::Seconds(1)}};
  EXPECT_LT(Reconcile().after, absl::Seconds(2));
  EXPECT_TRUE(Job()["status"].is_null()) << "before it is placed all members matter";
  members_.connecting_ = {{"tokyo", absl::Seconds(3)}};
  SettleBoth();
  EXPECT_EQ(Job()["status"]["executors"], "2/2") << "but not for long";
  members_.connecting_ = {{"tokyo", absl::ZeroDuration()}};
  EndBroker(0, 0, R"({"step":100,"steps":100,"exit_code":0})");
  SettleBoth();
  EXPECT_EQ(Job()["status"]["state"], "Complete");
}

// The operator dies at each of its requests in turn, to the hub or to Tokyo, while a job runs on both and is deleted when Tokyo is away.
// Every time nothing is left in the end.
class TwoClustersDyingTest : public LeftBehindTest, public ::testing::WithParamInterface<std::tuple<bool, bool>> {
 protected:
  // Until nothing changes any more; an operator that has died begins again.
  void SettleWithDeaths() {
    int quiet = 0;
    for (int i = 0; i < 60 && quiet < 3; ++i) {
      const auto before = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job());
      (void)Reconcile();
      SimulateCluster();
      (void)ReconcileTokyo();
      PlayTokyo();
      (void)Collect();
      if (transport_->died() || tokyo_transport_->died()) {
        deaths_++;
        tokyo_transport_->Revive();
        collector_.reset();
        Restart();
        quiet = 0;
        continue;
      }
      quiet = std::make_tuple(server_.objects(), tokyo_server_.objects(), Job()) == before ? quiet + 1 : 0;
    }
    EXPECT_EQ(quiet, 3) << "it does not settle";
  }
};

TEST_P(TwoClustersDyingTest, WhereverItDiesNothingIsLeft) {
  const auto [in_tokyo, carried_out] = GetParam();
  const std::vector<std::string> clean = server_.objects(), clean_tokyo = tokyo_server_.objects();
  int request = 0;
  for (deaths_ = 1; deaths_ > 0; ++request) {
    ASSERT_LT(request, 200);
    SCOPED_TRACE(request);
    deaths_ = 0;
    (in_tokyo ? tokyo_transport_ : transport_)->DieAt(request, carried_out);
    json job = testing::JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    Submit(job);
    SettleWithDeaths();
    EXPECT_TRUE(TokyoPod("train-tokyo-0-r0").contains("spec"));
    EXPECT_EQ(Job()["status"]["restarts"], 0);
    tokyo_->SetReachable(false);
    ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
    SettleWithDeaths();
    EXPECT_FALSE(Job().is_null());
    clock_.Advance(absl::Minutes(10));
    SettleWithDeaths();
    EXPECT_TRUE(Job().is_null());
    EXPECT_FALSE(TokyoIsClean());
    tokyo_->SetReachable(true);
    SettleWithDeaths();
    EXPECT_EQ(server_.objects(), clean);
    EXPECT_EQ(tokyo_server_.objects(), clean_tokyo);
  }
  EXPECT_GT(request, in_tokyo ? 5 : 15) << "requests in the life of a job";
}

INSTANTIATE_TEST_SUITE_P(All, TwoClustersDyingTest, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace fusionllm::op::controller
