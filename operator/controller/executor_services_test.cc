// How executors of two clusters are made reachable for each other, in the modes NodePort and LoadBalancer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "operator/controller/testing/two_clusters_fixture.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TwoClustersTest;

class ExecutorServicesTest : public TwoClustersTest {
 protected:
  void Submit(const std::string& mode) {
    json job = testing::JobObject();
    job["spec"]["network"] = {{"mode", mode}};
    TwoClustersTest::Submit(job);
  }
  static void AddNode(kube::ApiClient& client, const std::string& address) {
    const json node = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "node-0"}}}};
    ASSERT_TRUE(client.Create(manifests::kNodes, "", node.dump()).ok());
    const json status = {
        {"status",
         {{"addresses", {{{"type", "InternalIP"}, {"address", address}}}}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
    ASSERT_TRUE(client.Patch(manifests::kNodes, {"", "node-0"}, kube::PatchType::kMerge, status.dump(), {.subresource = "status"}).ok());
  }
  void AddNodes() {
    AddNode(*looking_, "192.0.2.1");
    AddNode(*tokyo_client_, "192.0.2.2");
  }
  // Null: there is none.
  static json Service(kube::ApiClient& client, const std::string& name) {
    return json::parse(client.Get(manifests::kServices, {"default", name}).value_or("null"));
  }
  json TokyoService() { return Service(*tokyo_client_, "train-tokyo-0"); }
  json HubPod(const std::string& name) { return json::parse(looking_->Get(manifests::kPods, {"default", name}).value_or("{}")); }
  static std::string After(const json& pod, const std::string& flag) {
    if (!pod.contains("spec")) return "no pod";
    const std::vector<std::string> command = pod["spec"]["containers"][0]["command"];
    const auto at = std::find(command.begin(), command.end(), flag);
    return at == command.end() || at + 1 == command.end() ? "" : *(at + 1);
  }
  static std::string NodePort(const json& service) { return absl::StrCat(service["spec"]["ports"][0]["nodePort"].get<int>()); }
  // "BROKER | HUB | TOKYO", as the status has them.
  std::string Endpoints() {
    const json status = Job()["status"];
    std::string text = status.value("endpoint", "none");
    for (const json& cluster : status["clusterStatuses"]) absl::StrAppend(&text, " | ", cluster.value("endpoint", "none"));
    return text;
  }
  std::string ReadyMessage() { return ConditionObject("Ready")["message"]; }
};

TEST_F(ExecutorServicesTest, ByNodePortsEachIsReachedAtANodeOfItsOwnCluster) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  const json here = Service(*looking_, "train-local-0"), there = TokyoService();
  ASSERT_FALSE(here.is_null() || there.is_null());
  EXPECT_EQ(here["spec"]["type"], "NodePort");
  EXPECT_EQ(After(HubPod("train-local-0-r0"), "--advertise"), "192.0.2.1:" + NodePort(here));
  const json pod = TokyoPod("train-tokyo-0-r0");
  EXPECT_EQ(After(pod, "--advertise"), "192.0.2.2:" + NodePort(there));
  EXPECT_EQ(pod["metadata"]["annotations"][manifests::kAdvertisedAnnotation], "192.0.2.2:" + NodePort(there));
  EXPECT_EQ(After(pod, "--broker"), "192.0.2.1:" + NodePort(Service(*looking_, "train-broker")));
  EXPECT_EQ(After(HubPod("train-broker-r0"), "--advertise"), "") << "nobody but executors advertises";
  EXPECT_EQ(Endpoints(), absl::StrCat("192.0.2.1:", NodePort(Service(*looking_, "train-broker")), " | 192.0.2.1:", NodePort(here),
                                      " | 192.0.2.2:", NodePort(there)));
}

TEST_F(ExecutorServicesTest, EgressOnlyClusterUsesRelay) {
  AddNodes();
  members_.egress_only_ = {"tokyo"};
  Submit("NodePort");
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_TRUE(TokyoService().is_null()) << "it would lead nobody there";
  const auto command = [](const json& pod) { return pod["spec"]["containers"][0]["command"]; };
  const json away = TokyoPod("train-tokyo-0-r0"), here = HubPod("train-local-0-r0");
  EXPECT_THAT(command(away), AllOf(Contains("--relay"), Not(Contains("--listen")), Not(Contains("--advertise"))));
  EXPECT_THAT(command(here), AllOf(Contains("--relay"), Contains("--listen"), Contains("--advertise"))) << "it can be dialled by others";
  const std::string broker = "192.0.2.1:" + NodePort(Service(*looking_, "train-broker"));
  EXPECT_EQ(Endpoints(), absl::StrCat(broker, " | 192.0.2.1:", NodePort(Service(*looking_, "train-local-0")), " | relay ", broker));
}

TEST_F(ExecutorServicesTest, ALoadBalancerIsDialledAtItsOwnAddress) {
  Submit("LoadBalancer");
  SettleBoth();
  EXPECT_EQ(After(HubPod("train-local-0-r0"), "--advertise"), "203.0.113.10:7001");
  EXPECT_EQ(After(TokyoPod("train-tokyo-0-r0"), "--advertise"), "198.51.100.10:7001");
  EXPECT_EQ(Endpoints(), "203.0.113.5:7000 | 203.0.113.10:7001 | 198.51.100.10:7001");
}

TEST_F(ExecutorServicesTest, WhatTheFusionClusterSaysOfItsNodesGoesBeforeWhatTheySay) {
  AddNodes();
  members_.addresses_ = {{"local", "hub.example.org"}, {"tokyo", "2001:db8::2"}};
  Submit("NodePort");
  SettleBoth();
  EXPECT_EQ(After(HubPod("train-local-0-r0"), "--advertise"), "hub.example.org:" + NodePort(Service(*looking_, "train-local-0")));
  const json pod = TokyoPod("train-tokyo-0-r0");
  EXPECT_EQ(After(pod, "--advertise"), "[2001:db8::2]:" + NodePort(TokyoService()));
  EXPECT_EQ(After(pod, "--broker"), "hub.example.org:" + NodePort(Service(*looking_, "train-broker")));
}

TEST_F(ExecutorServicesTest, InOneClusterPodsDialEachOther) {
  json job = testing::JobObject();
  job["spec"]["network"] = {{"mode", "NodePort"}};
  job["spec"]["placement"] = {{"clusters", {{{"name", "local"}, {"min", 2}}}}};
  TwoClustersTest::Submit(job);
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_TRUE(Service(*looking_, "train-local-0").is_null());
  EXPECT_EQ(After(HubPod("train-local-0-r0"), "--advertise"), "");
  EXPECT_THAT(Endpoints(), ::testing::EndsWith(" | none")) << "nobody outside dials them";
}

TEST_F(ExecutorServicesTest, ThereIsNoPodBeforeItsAddressAndTheJobSaysWhichIsMissing) {
  tokyo_balances_ = false;
  Submit("LoadBalancer");
  SettleBoth();
  EXPECT_EQ(TokyoService()["spec"]["type"], "LoadBalancer");
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0")) << "the hub's part has what it needs";
  EXPECT_EQ(Condition("Ready"), "False WaitingForAddress");
  EXPECT_THAT(ReadyMessage(), HasSubstr("the load balancer of Service train-tokyo-0 in cluster tokyo has no address yet"));

  // It is looked at again, and nothing is written meanwhile.
  tokyo_server_.ForgetRequests();
  const kube::ReconcileResult again = ReconcileTokyo();
  EXPECT_TRUE(again.status.ok()) << again.status;
  EXPECT_LE(again.after, absl::Seconds(5));
  for (const auto& request : tokyo_server_.requests()) {
    const bool reads = request.verb == "get" || request.verb == "list";
    EXPECT_TRUE(reads || request.code == 409) << request.verb << " " << request.target;
  }

  tokyo_balances_ = true;
  SettleBoth();
  EXPECT_EQ(After(TokyoPod("train-tokyo-0-r0"), "--advertise"), "198.51.100.10:7001");
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_EQ(tokyo_->OwnerConfigMaps().at(0).waiting, "");
}

TEST_F(ExecutorServicesTest, WaitingForAnAddressIsNoFailureBeforeTheOwnerConfigMapIsSeen) {
  balances_ = false;
  member_->KeepOwnerConfigMaps();
  Submit("LoadBalancer");
  kube::ReconcileResult result;
  for (int look = 0; look < 8; ++look) {
    result = Reconcile();
    ASSERT_TRUE(result.status.ok()) << result.status;
    SimulateCluster();
  }
  EXPECT_EQ(result.after, absl::Seconds(5));
}

TEST_F(ExecutorServicesTest, OnTheHubNothingIsMadeBeforeAllAddressesAreThere) {
  balances_ = false;
  Submit("LoadBalancer");
  SettleBoth();
  EXPECT_THAT(PodNames(), ElementsAre());
  EXPECT_FALSE(Service(*looking_, "train-local-0").is_null()) << "it is asked for while the broker's is waited for";
  EXPECT_EQ(Condition("Ready"), "False WaitingForAddress");
  EXPECT_THAT(ReadyMessage(), HasSubstr("Service train-broker in cluster local"));
  balances_ = true;
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(ExecutorServicesTest, AJobThatWaitsForAnAddressKeepsItsDeadline) {
  tokyo_balances_ = false;
  json job = testing::JobObject();
  job["spec"]["network"] = {{"mode", "LoadBalancer"}};
  job["spec"]["pendingDeadlineSeconds"] = 60;
  TwoClustersTest::Submit(job);
  SettleBoth();
  clock_.Advance(absl::Seconds(61));
  SettleBoth();
  EXPECT_EQ(Condition("Failed"), "True PendingDeadlineExceeded");
  EXPECT_THAT(std::string(ConditionObject("Failed")["message"]), HasSubstr("Service train-tokyo-0 in cluster tokyo"));
}

TEST_F(ExecutorServicesTest, TheStatusSaysWhatIsDialled) {
  Submit("LoadBalancer");
  SettleBoth();
  const json status = Job()["status"];
  EXPECT_EQ(status["endpoint"], "203.0.113.5:7000") << "of the broker, as Tokyo dials it";
  std::map<std::string, std::string> endpoints;
  for (const json& cluster : status["clusterStatuses"]) endpoints[cluster["name"]] = cluster.value("endpoint", "none");
  EXPECT_EQ(endpoints["tokyo"], After(TokyoPod("train-tokyo-0-r0"), "--advertise"));
  EXPECT_THAT(endpoints["local"], HasSubstr("203.0.113."));
  tokyo_->SetReachable(false);
  tokyo_->SetBlind(true);
  SettleBoth();
  EXPECT_THAT(Job()["status"]["clusterStatuses"].dump(), HasSubstr(endpoints["tokyo"])) << "as long as nobody knows better";
}

TEST_F(ExecutorServicesTest, StatusHasPodAddressesWithoutServices) {
  AddNodes();
  Submit("Direct");
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  EXPECT_THAT(Endpoints(), AllOf(HasSubstr(" | 10.0.0.1:7001"), HasSubstr(" | 10.9.0.1:7001")));
  server_.ForgetRequests();
  tokyo_server_.ForgetRequests();
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(Reconcile().status.ok());
    EXPECT_TRUE(ReconcileTokyo().status.ok());
  }
  for (const auto* server : {&server_, &tokyo_server_}) {
    for (const auto& request : server->requests()) EXPECT_EQ(request.method, "GET") << request.target;
  }
}

TEST_F(ExecutorServicesTest, AJobOfOneClusterNamesTheBrokersServiceAlone) {
  members_.remote_.clear();
  TwoClustersTest::Submit(testing::JobObject());
  Settle();
  const json service = json::parse(looking_->Get(manifests::kServices, {"default", "train-broker"}).value());
  EXPECT_EQ(Job()["status"]["endpoint"], absl::StrCat(std::string(service["spec"]["clusterIP"]), ":7000"));
  EXPECT_FALSE(Job()["status"]["clusterStatuses"][0].contains("endpoint"));
}

TEST_F(ExecutorServicesTest, WithoutANodeToDialTheJobSaysWhoCanNameOne) {
  AddNode(*looking_, "192.0.2.1");
  Submit("NodePort");
  SettleBoth();
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  EXPECT_THAT(ReadyMessage(), AllOf(HasSubstr("no node of cluster tokyo has an address"), HasSubstr("FusionCluster")));
  AddNode(*tokyo_client_, "192.0.2.2");
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(ExecutorServicesTest, AServiceOfSomebodyElseIsLeftAlone) {
  AddNodes();
  const json theirs = {{"apiVersion", "v1"},
                       {"kind", "Service"},
                       {"metadata", {{"name", "train-tokyo-0"}}},
                       {"spec", {{"selector", {{"app", "web"}}}, {"ports", {{{"port", 80}}}}}}};
  ASSERT_TRUE(tokyo_client_->Create(manifests::kServices, "default", theirs.dump()).ok());
  Submit("NodePort");
  SettleBoth();
  EXPECT_EQ(TokyoService()["spec"]["selector"], theirs["spec"]["selector"]);
  EXPECT_EQ(Condition("Scheduled"), "False Conflict");
  EXPECT_THAT(ReadyMessage(), HasSubstr("Service train-tokyo-0 in cluster tokyo exists already and is not owned by this job"));
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kServices, {"default", "train-tokyo-0"}).ok());
  clock_.Advance(absl::Seconds(15));
  SettleBoth();
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
}

TEST_F(ExecutorServicesTest, ReportsMissingServicePermission) {
  AddNodes();
  const json refusal = {{"kind", "Status"},      {"apiVersion", "v1"},
                        {"status", "Failure"},   {"message", "services is forbidden: User \"hub\" cannot get resource \"services\""},
                        {"reason", "Forbidden"}, {"code", 403}};
  tokyo_server_.AddFault({.target = "/services", .times = 1000, .code = 403, .body = refusal.dump()});
  Submit("NodePort");
  for (int i = 0; i < 4; ++i) {
    (void)Reconcile();
    SimulateCluster();
    (void)ReconcileTokyo();
  }
  EXPECT_FALSE(TokyoPod("train-tokyo-0-r0").contains("spec"));
  EXPECT_THAT(ReadyMessage(), HasSubstr("services is forbidden"));
}

TEST_F(ExecutorServicesTest, TheNextAttemptIsReachedWhereTheLastOneWas) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  const json before = TokyoService();
  const std::string advertised = After(TokyoPod("train-tokyo-0-r0"), "--advertise");
  EndBroker(0, 1, R"({"error":"x"})");
  SettleBoth();
  EXPECT_EQ(TokyoService()["metadata"]["uid"], before["metadata"]["uid"]);
  EXPECT_EQ(TokyoService()["spec"], before["spec"]);
  EXPECT_EQ(After(TokyoPod("train-tokyo-0-r1"), "--advertise"), advertised);
}

TEST_F(ExecutorServicesTest, AnExecutorThatIsReplacedIsReachedWhereItWas) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  const std::string advertised = After(TokyoPod("train-tokyo-0-r0"), "--advertise");
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kPods, {"default", "train-tokyo-0-r0"}, {.grace_period_seconds = 0}).ok());
  SettleBoth();
  EXPECT_EQ(After(TokyoPod("train-tokyo-0-r0"), "--advertise"), advertised);
}

TEST_F(ExecutorServicesTest, ServicesGoWithTheirJob) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  ASSERT_FALSE(TokyoService().is_null());
  ASSERT_TRUE(looking_->Delete(manifests::kFusionJobs, {"default", "train"}).ok());
  SettleBoth();
  EXPECT_TRUE(Job().is_null());
  EXPECT_THAT(server_.objects(), Not(Contains(HasSubstr("train"))));
  EXPECT_THAT(tokyo_server_.objects(), Not(Contains(HasSubstr("train"))));
}

TEST_F(ExecutorServicesTest, AnotherModeTakesEffectWithTheNextAttempt) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  SettleBoth();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}, {"network", {{"mode", "LoadBalancer"}}}}}});
  SettleBoth();
  EXPECT_EQ(TokyoService()["spec"]["type"], "LoadBalancer");
  EXPECT_EQ(After(TokyoPod("train-tokyo-0-r1"), "--advertise"), "198.51.100.10:7001");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", true}}}});
  SettleBoth();
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"suspend", false}, {"network", {{"mode", "Relay"}}}}}});
  SettleBoth();
  EXPECT_EQ(After(TokyoPod("train-tokyo-0-r2"), "--advertise"), "");
  EXPECT_THAT(Endpoints(), ::testing::ContainsRegex("^[0-9.:]+ . relay [0-9.:]+ . relay [0-9.:]+$"));
}

TEST_F(ExecutorServicesTest, WhatTheJobDoesNotWantAnyMoreIsNotWaitedFor) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  for (kube::ApiClient* cluster : {looking_.get(), tokyo_client_.get()})
    ASSERT_TRUE(cluster->Delete(manifests::kNodes, {"", "node-0"}).ok());
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"training", {{"steps", 200}}}}}});
  SettleBoth();
  ASSERT_NE(tokyo_->OwnerConfigMaps().at(0).waiting, "");
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"training", {{"steps", 100}}}}}});
  AddNodes();
  SettleBoth();
  EXPECT_EQ(member_->OwnerConfigMaps().at(0).waiting, "");
  EXPECT_EQ(tokyo_->OwnerConfigMaps().at(0).waiting, "");
}

// One of before prepared the attempt, and made no Services.
TEST_F(ExecutorServicesTest, AnExecutorIsReachedThoughAnOlderOperatorHasBegunItsAttempt) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  const std::string advertised = After(TokyoPod("train-tokyo-0-r0"), "--advertise");
  const json notes = {
      {"metadata",
       {{"annotations", {{manifests::kExecutorServicesAnnotation, nullptr}, {manifests::kExecutorAddressesAnnotation, nullptr}}}}}};
  ASSERT_TRUE(tokyo_client_->Patch(manifests::kConfigMaps, {"default", "train-anchor"}, kube::PatchType::kMerge, notes.dump()).ok());
  ASSERT_TRUE(tokyo_client_->Delete(manifests::kPods, {"default", "train-tokyo-0-r0"}, {.grace_period_seconds = 0}).ok());
  SettleBoth();
  EXPECT_EQ(After(TokyoPod("train-tokyo-0-r0"), "--advertise"), advertised);
}

// Its nodes are away just when the job's document changes: those that train go on, and are not forgotten.
TEST_F(ExecutorServicesTest, WaitingDoesNotMoveRunningPods) {
  AddNodes();
  Submit("NodePort");
  SettleBoth();
  const std::string advertised = After(TokyoPod("train-tokyo-0-r0"), "--advertise");
  const cache::OwnerConfigMapView before = member_->OwnerConfigMaps().at(0);
  for (kube::ApiClient* cluster : {looking_.get(), tokyo_client_.get()})
    ASSERT_TRUE(cluster->Delete(manifests::kNodes, {"", "node-0"}).ok());
  Patch(manifests::kFusionJobs, "train", {{"spec", {{"training", {{"steps", 200}}}}}});
  SettleBoth();
  const cache::OwnerConfigMapView waiting = member_->OwnerConfigMaps().at(0);
  EXPECT_THAT(waiting.waiting, HasSubstr("no node of cluster local"));
  EXPECT_EQ(waiting.placement, before.placement) << "else they would be placed anew, while they run";
  EXPECT_EQ(waiting.remote_broker_address, before.remote_broker_address);
  EXPECT_EQ(waiting.executor_addresses, before.executor_addresses);
  EXPECT_THAT(PodNames(), ElementsAre("train-broker-r0", "train-local-0-r0"));
  EXPECT_EQ(Job()["status"]["restarts"], 0);
  EXPECT_EQ(Condition("Ready"), "True AllExecutorsReady");
  AddNodes();
  SettleBoth();
  EXPECT_EQ(member_->OwnerConfigMaps().at(0).waiting, "");
  EXPECT_EQ(tokyo_->OwnerConfigMaps().at(0).executor_addresses.at("tokyo-0"), advertised);
}

}  // namespace
}  // namespace fusionllm::op::controller
