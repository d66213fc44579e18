// Where a Service is reached, as different clusters say it.
#include "operator/controller/job_services.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "lib/kube/client/forwarding_client.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/manifests/resources.h"
#include "operator/manifests/run_objects.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const manifests::JobIdentity kServedJob = {.name = "train", .ns = "default", .uid = "u1", .origin = "hub"};

class JobServicesTest : public ::testing::Test {
 protected:
  void AddNode(const std::string& name, bool ready, const std::vector<std::pair<std::string, std::string>>& addresses) {
    ASSERT_TRUE(
        client_->Create(manifests::kNodes, "", json{{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}}}}.dump()).ok());
    json list = json::array();
    for (const auto& [type, address] : addresses) list.push_back({{"type", type}, {"address", address}});
    const json status = {{"addresses", list}, {"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "Unknown"}}}}};
    Patch(manifests::kNodes, {"", name}, status);
  }
  void Patch(const kube::Resource& resource, const kube::ObjectKey& key, const json& status) {
    const auto done = client_->Patch(resource, key, kube::PatchType::kMerge, json{{"status", status}}.dump(), {.subresource = "status"});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  static json Wanted(job::NetworkMode mode) {
    job::FusionJob job;
    job.spec.network.mode = mode;
    return manifests::ExecutorServiceObject(kServedJob, job, {"paris", 0, false}, /*owner=*/{});
  }
  // Where it is reached from outside, or what is missing.
  std::string Reach(job::NetworkMode mode, const std::optional<std::string>& host = std::nullopt, const std::string& node_address = "") {
    JobServices services(*client_, kServedJob, "paris", node_address, {});
    const auto endpoints = services.Make(Wanted(mode), /*external=*/true, /*before=*/{}, host);
    EXPECT_TRUE(endpoints.ok()) << endpoints.status();
    if (!endpoints.ok()) return "error";
    EXPECT_NE(endpoints->external.empty(), endpoints->missing.empty());
    return endpoints->missing.empty() ? endpoints->external : endpoints->missing;
  }
  void Balance(const json& ingress) {
    Patch(manifests::kServices, {"default", "train-paris-0"}, {{"loadBalancer", {{"ingress", {ingress}}}}});
  }
  // With one that was there before.
  json MadeAgain(const ServiceEndpoints& before) {
    JobServices services(*client_, kServedJob, "paris", "", {});
    const auto endpoints = services.Make(Wanted(kNodePort), /*external=*/true, before);
    EXPECT_TRUE(endpoints.ok()) << endpoints.status();
    return json::parse(client_->Get(manifests::kServices, {"default", "train-paris-0"}).value())["spec"];
  }
  // Of the fake's choice.
  std::string Port() {
    const json service = json::parse(client_->Get(manifests::kServices, {"default", "train-paris-0"}).value());
    return std::to_string(service["spec"]["ports"][0]["nodePort"].get<int>());
  }
  static constexpr auto kNodePort = job::NetworkMode::kNodePort;
  static constexpr auto kLoadBalancer = job::NetworkMode::kLoadBalancer;

  kube::testing::FakeClock clock_;
  kube::testing::FakeApiServer server_{clock_};
  const std::unique_ptr<kube::ApiClient> client_ = std::make_unique<kube::RestClient>(
      kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
      kube::RestClientOptions{.max_retries = 0}, clock_);
};

TEST_F(JobServicesTest, AnAddressThatLeadsEverybodyToHimselfIsNone) {
  AddNode("a", true, {{"InternalIP", "10.0.0.1"}});
  for (const char* own : {"127.0.0.1", "127.9.0.1", "::1", "localhost"}) {
    EXPECT_THAT(Reach(kNodePort, own), ::testing::HasSubstr(absl::StrCat(own, " leads each machine to itself"))) << "said of the broker";
    EXPECT_THAT(Reach(kNodePort, std::nullopt, own), ::testing::HasSubstr(absl::StrCat(own, " leads each machine to itself")))
        << "of nodes";
  }
  EXPECT_THAT(Reach(kNodePort), StartsWith("10.0.0.1:"));
}

TEST_F(JobServicesTest, ANodeThatWorksGoesBeforeOneThatIsReachedFromAfar) {
  AddNode("a", false, {{"ExternalIP", "203.0.113.1"}, {"InternalIP", "10.0.0.1"}});
  AddNode("b", true, {{"Hostname", "b"}, {"InternalIP", "10.0.0.2"}});
  EXPECT_THAT(Reach(kNodePort), StartsWith("10.0.0.2:"));
  AddNode("c", true, {{"InternalIP", "10.0.0.3"}, {"ExternalIP", "203.0.113.3"}});
  EXPECT_EQ(Reach(kNodePort), "203.0.113.3:" + Port());
}

TEST_F(JobServicesTest, WithoutOneThatWorksAnyDoes) {
  EXPECT_THAT(Reach(kNodePort), HasSubstr("no node of cluster paris has an address"));
  AddNode("a", false, {{"InternalIP", "fd00::1"}});
  EXPECT_EQ(Reach(kNodePort), "[fd00::1]:" + Port());
}

TEST_F(JobServicesTest, WhatIsSaidOfTheNodesGoesBeforeThem) {
  AddNode("a", true, {{"InternalIP", "10.0.0.1"}});
  EXPECT_THAT(Reach(kNodePort), StartsWith("10.0.0.1:"));
  EXPECT_EQ(Reach(kNodePort, std::nullopt, "paris.example.org"), "paris.example.org:" + Port());
  EXPECT_EQ(Reach(kNodePort, "192.0.2.7", "paris.example.org"), "192.0.2.7:" + Port());
}

TEST_F(JobServicesTest, ALoadBalancerHasAnAddressOrAName) {
  EXPECT_EQ(Reach(kLoadBalancer), "the load balancer of Service train-paris-0 in cluster paris has no address yet");
  EXPECT_EQ(Reach(kLoadBalancer, "192.0.2.7"), "the load balancer of Service train-paris-0 in cluster paris has no address yet");
  Balance({{"hostname", "lb.example.org"}});
  EXPECT_EQ(Reach(kLoadBalancer), "lb.example.org:7001");
  EXPECT_EQ(Reach(kLoadBalancer, "192.0.2.7"), "192.0.2.7:7001");
  EXPECT_EQ(Reach(kLoadBalancer, std::nullopt, "paris.example.org"), "lb.example.org:7001") << "that is of the nodes";
  Balance({{"ip", "203.0.113.5"}, {"hostname", "lb.example.org"}});
  EXPECT_EQ(Reach(kLoadBalancer), "203.0.113.5:7001");
}

// Part of a pod's command comes from here.
TEST_F(JobServicesTest, ReportsUnreachableService) {
  EXPECT_THAT(Reach(kLoadBalancer), EndsWith("no address yet"));
  Balance({{"hostname", "$(POD_IP)"}});
  EXPECT_THAT(Reach(kLoadBalancer), StartsWith("no executor can dial Service train-paris-0 in cluster paris"));
}

TEST_F(JobServicesTest, WhatIsThereIsNotWrittenAgain) {
  AddNode("a", true, {{"InternalIP", "10.0.0.1"}});
  const std::string first = Reach(kNodePort);
  server_.ForgetRequests();
  EXPECT_EQ(Reach(kNodePort), first);
  for (const auto& request : server_.requests()) EXPECT_THAT(request.verb, ::testing::AnyOf("get", "list")) << request.target;
}

TEST_F(JobServicesTest, OneThatIsMadeAgainIsReachedWhereItWas) {
  const json spec = MadeAgain({.internal = "10.96.7.7:7001", .external = "192.0.2.7:31234"});
  EXPECT_EQ(spec["clusterIP"], "10.96.7.7");
  EXPECT_EQ(spec["ports"][0]["nodePort"], 31234);
}

TEST_F(JobServicesTest, UnlessSomebodyElseHasThatAddressByNow) {
  const json taken = {{"kind", "Status"},
                      {"status", "Failure"},
                      {"reason", "Invalid"},
                      {"code", 422},
                      {"message", "spec.clusterIPs: Invalid value: provided IP is already allocated"}};
  server_.AddFault({.verb = "apply", .target = "/services/", .code = 422, .body = taken.dump()});
  EXPECT_NE(MadeAgain({.internal = "10.96.7.7:7001", .external = "192.0.2.7:31234"})["ports"][0]["nodePort"], 31234);
}

// Whose name another job's has taken since it was looked at.
class ChangingHands : public kube::ForwardingClient {
 public:
  using kube::ForwardingClient::ForwardingClient;
  absl::StatusOr<std::string> Delete(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options,
                                     const kube::CallOptions& call) override {
    json next = json::parse(inner().Get(resource, key, call).value());
    for (const char* field : {"uid", "resourceVersion"}) next["metadata"].erase(field);
    next["metadata"]["labels"][manifests::kJobUidLabel] = "another";
    EXPECT_TRUE(inner().Delete(resource, key, {}, call).ok());
    EXPECT_TRUE(inner().Create(resource, key.ns, next.dump(), {}, call).ok());
    return inner().Delete(resource, key, options, call);
  }
};

TEST_F(JobServicesTest, OneThatHasChangedHandsIsNotRemoved) {
  (void)Reach(kNodePort);
  ChangingHands client(*client_);
  EXPECT_TRUE(JobServices(client, kServedJob, "paris", "", {}).Remove("train-paris-0").ok());
  const auto there = client_->Get(manifests::kServices, {"default", "train-paris-0"});
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(json::parse(*there)["metadata"]["labels"][manifests::kJobUidLabel], "another");
}

TEST_F(JobServicesTest, OneThatIsBeingDeletedIsWaitedFor) {
  AddNode("a", true, {{"InternalIP", "10.0.0.1"}});
  (void)Reach(kNodePort);
  const json held = {{"metadata", {{"finalizers", {"service.kubernetes.io/load-balancer-cleanup"}}}}};
  ASSERT_TRUE(client_->Patch(manifests::kServices, {"default", "train-paris-0"}, kube::PatchType::kMerge, held.dump()).ok());
  ASSERT_TRUE(client_->Delete(manifests::kServices, {"default", "train-paris-0"}).ok());
  EXPECT_EQ(Reach(kNodePort), "Service train-paris-0 in cluster paris is still being deleted");
}

}  // namespace
}  // namespace fusionllm::op::controller
