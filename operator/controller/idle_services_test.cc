// Services that are not dialed any more: load balancers cost as long as they are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::TwoClustersTest;
using ::testing::UnorderedElementsAre;

class IdleServicesTest : public TwoClustersTest {
 protected:
  void Start(const json& more = json::object()) {
    json job = testing::JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    job["spec"].update(more);
    TwoClustersTest::Submit(job);
    SettleBoth();
    ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
    ASSERT_THAT(ServicesOf(*looking_), UnorderedElementsAre("train-broker", "train-local-0"));
    ASSERT_THAT(ServicesOf(*tokyo_client_), ElementsAre("train-tokyo-0"));
  }
  // Nothing is written, though all is looked at again.
  void ExpectRest() {
    server_.ForgetRequests();
    tokyo_server_.ForgetRequests();
    EXPECT_TRUE(Reconcile().status.ok());
    EXPECT_TRUE(ReconcileTokyo().status.ok());
    for (const auto* server : {&server_, &tokyo_server_}) {
      for (const auto& request : server->requests()) EXPECT_EQ(request.method, "GET") << request.target;
    }
  }
  // Of the broker, and of the executors by cluster.
  json Endpoints() {
    const json status = Job()["status"];
    json endpoints = {{"broker", status.value("endpoint", "none")}};
    for (const json& cluster : status["clusterStatuses"]) endpoints[cluster["name"]] = cluster.value("endpoint", "none");
    EXPECT_EQ(endpoints.size(), 3u);
    return endpoints;
  }
  static std::vector<std::string> ServicesOf(kube::ApiClient& client) {
    std::vector<std::string> names;
    const json services = json::parse(client.List(manifests::kServices, "default").value());
    for (const json& service : services["items"]) names.push_back(service["metadata"]["name"]);
    return names;
  }
};

TEST_F(IdleServicesTest, AJobThatIsOverHasNone) {
  Start();
  const json before = Endpoints();
  EndBroker(0, 0, "");
  SettleBoth();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_THAT(ServicesOf(*looking_), ElementsAre());
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre());
  EXPECT_EQ(Endpoints(), before) << "where it was reached is still told";
  ExpectRest();
}

// Which named addresses alone.
TEST_F(IdleServicesTest, ThoseOfAnOlderOperatorGoToo) {
  Start();
  const json note = {{"metadata", {{"annotations", {{manifests::kExecutorServicesAnnotation, nullptr}}}}}};
  for (kube::ApiClient* cluster : {looking_.get(), tokyo_client_.get()}) {
    ASSERT_TRUE(cluster->Patch(manifests::kConfigMaps, {"default", "train-anchor"}, kube::PatchType::kMerge, note.dump()).ok());
  }
  EndBroker(0, 0, "");
  SettleBoth();
  EXPECT_THAT(ServicesOf(*looking_), ElementsAre());
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre());
}

TEST_F(IdleServicesTest, TerminatingOwnerConfigMapIsLeftAlone) {
  Start();
  const json held = {{"metadata", {{"finalizers", {"example.org/held"}}}}};
  ASSERT_TRUE(looking_->Patch(manifests::kConfigMaps, {"default", "train-anchor"}, kube::PatchType::kMerge, held.dump()).ok());
  EndBroker(0, 0, "");
  ASSERT_TRUE(looking_->Delete(manifests::kConfigMaps, {"default", "train-anchor"}).ok());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Reconcile().status.ok());
  EXPECT_EQ(Condition("Complete"), "True Completed");
}

TEST_F(IdleServicesTest, KeptPodsOfFinishedJobKeepServices) {
  Start({{"cleanPodPolicy", "None"}});
  EndBroker(0, 0, "");
  SettleBoth();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_THAT(ServicesOf(*looking_), UnorderedElementsAre("train-broker", "train-local-0"));
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre("train-tokyo-0"));
}

TEST_F(IdleServicesTest, ASuspendedJobKeepsItsAddresses) {
  Start();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  EndBroker(0, 0, "");
  SettleBoth();
  EXPECT_EQ(Condition("Suspended"), "True Suspended");
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre("train-tokyo-0"));
}

TEST_F(IdleServicesTest, AnAttemptWithFewerExecutorsRemovesThoseOfTheOthers) {
  Start({{"checkpoint", {{"path", "s3://models/ckpt"}, {"everySteps", 5}}}});
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 1}, {"min", 1}}}}}});
  SettleBoth();
  EXPECT_EQ(Job()["status"]["attempt"], 1);
  const size_t left = ServicesOf(*looking_).size() + ServicesOf(*tokyo_client_).size();
  EXPECT_EQ(left, 1u) << "of the broker; one executor has nobody to dial";
  EXPECT_THAT(ServicesOf(*looking_), ElementsAre("train-broker"));
}

TEST_F(IdleServicesTest, ThoseThatWaitedForTheirAddressToTheEndGoToo) {
  tokyo_balances_ = false;
  json job = testing::JobObject();
  job["spec"]["network"] = {{"mode", "LoadBalancer"}};
  job["spec"]["pendingDeadlineSeconds"] = 60;
  TwoClustersTest::Submit(job);
  SettleBoth();
  ASSERT_THAT(ServicesOf(*tokyo_client_), ElementsAre("train-tokyo-0"));
  clock_.Advance(absl::Seconds(61));
  SettleBoth();
  EXPECT_EQ(Condition("Failed"), "True PendingDeadlineExceeded");
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre());
  EXPECT_THAT(ServicesOf(*looking_), ElementsAre());
  ExpectRest();
}

TEST_F(IdleServicesTest, ABrokersThatWaitedForItsAddressToTheEndGoesToo) {
  balances_ = false;
  json job = testing::JobObject();
  job["spec"]["network"] = {{"mode", "LoadBalancer"}};
  job["spec"]["placement"] = {{"clusters", {{{"name", "tokyo"}, {"min", 2}}}}};
  job["spec"]["pendingDeadlineSeconds"] = 60;
  TwoClustersTest::Submit(job);
  SettleBoth();
  ASSERT_THAT(ServicesOf(*looking_), ElementsAre("train-broker"));
  clock_.Advance(absl::Seconds(61));
  SettleBoth();
  EXPECT_EQ(Condition("Failed"), "True PendingDeadlineExceeded");
  EXPECT_THAT(ServicesOf(*looking_), ElementsAre());
  ExpectRest();
}

TEST_F(IdleServicesTest, ThoseThatWaitedInAClusterThatTheNextAttemptLeavesGoToo) {
  tokyo_balances_ = false;
  json job = testing::JobObject();
  job["spec"]["network"] = {{"mode", "LoadBalancer"}};
  TwoClustersTest::Submit(job);
  SettleBoth();
  ASSERT_THAT(ServicesOf(*tokyo_client_), ElementsAre("train-tokyo-0"));
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"executors", {{"replicas", 1}, {"min", 1}}}}}});
  SettleBoth();
  ASSERT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre());
  EXPECT_THAT(ServicesOf(*looking_), ElementsAre("train-broker"));
}

TEST_F(IdleServicesTest, AnotherJobsServiceOfTheNameIsLeftAlone) {
  Start();
  const json theirs = {{"metadata", {{"labels", {{manifests::kJobUidLabel, "another"}}}}}};
  ASSERT_TRUE(tokyo_client_->Patch(manifests::kServices, {"default", "train-tokyo-0"}, kube::PatchType::kMerge, theirs.dump()).ok());
  EndBroker(0, 0, "");
  SettleBoth();
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre("train-tokyo-0"));
}

TEST_F(IdleServicesTest, NamesThatNoServiceCanHaveArePassedOver) {
  Start();
  const std::string written = absl::StrCat("tokyo-0,/../../secrets/train-executors,", std::string(100'000, 'g'));
  const json note = {{"metadata", {{"annotations", {{manifests::kExecutorServicesAnnotation, written}}}}}};
  ASSERT_TRUE(tokyo_client_->Patch(manifests::kConfigMaps, {"default", "train-anchor"}, kube::PatchType::kMerge, note.dump()).ok());
  EndBroker(0, 0, "");
  SettleBoth();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre());
  for (const auto& request : tokyo_server_.requests()) EXPECT_THAT(request.target, ::testing::Not(::testing::HasSubstr("ggg")));
}

TEST_F(IdleServicesTest, AnAccountOfBeforeThatMayNotDeleteThemLeavesThem) {
  Start();
  tokyo_server_.AddFault({.verb = "delete",
                          .target = "/services",
                          .times = 1000,
                          .code = 403,
                          .body = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"may not delete services"})"});
  EndBroker(0, 0, "");
  SettleBoth();
  EXPECT_EQ(Condition("Complete"), "True Completed");
  EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre("train-tokyo-0"));
  const auto tries = [this] {
    const auto requests = tokyo_server_.requests();
    return std::count_if(requests.begin(), requests.end(),
                         [](const auto& request) { return request.verb == "delete" && absl::StrContains(request.target, "/services"); });
  };
  EXPECT_EQ(tries(), 1) << "once is enough";
}

TEST_F(IdleServicesTest, WhereverTheOperatorDiesNoneIsLeft) {
  for (const bool in_tokyo : {false, true}) {
    bool died = true;
    for (int request = 0; died; ++request) {
      SCOPED_TRACE(absl::StrCat(in_tokyo ? "tokyo " : "hub ", request));
      ASSERT_LT(request, 100);
      Start();
      EndBroker(0, 0, "");
      testing::CrashingTransport* const dying = in_tokyo ? tokyo_transport_ : transport_;
      dying->DieAt(request, /*carried_out=*/request % 2 == 0);
      died = false;
      for (int look = 0; look < 20; ++look) {
        (void)Reconcile();
        (void)ReconcileTokyo();
        if (!dying->died()) continue;
        died = true;
        dying->Revive();
        dying->DieAt(-1, false);
        Restart();
      }
      dying->DieAt(-1, false);
      EXPECT_THAT(ServicesOf(*looking_), ElementsAre());
      EXPECT_THAT(ServicesOf(*tokyo_client_), ElementsAre());
      ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
      SettleBoth();
      ASSERT_TRUE(Job().is_null());
    }
  }
}

}  // namespace
}  // namespace fusionllm::op::controller
