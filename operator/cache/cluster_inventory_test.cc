// Nodes and pods on an API server in memory.
#include "operator/cache/cluster_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::cache {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ClusterInventoryTest : public ::testing::Test {
 protected:
  ClusterInventoryTest()
      : rest_(kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
              kube::RestClientOptions{}, clock_) {}

  void AddNode(const std::string& name, const char* ready = "True") {
    const json status = {{"allocatable", {{"cpu", "4"}, {"memory", "8Gi"}, {"pods", "110"}}},
                         {"conditions", {{{"type", "Ready"}, {"status", ready}}}}};
    const json node = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", name}, {"labels", {{"pool", "a"}}}}}};
    ASSERT_TRUE(client_.Create(manifests::kNodes, "", node.dump()).ok());
    Patch(manifests::kNodes, {"", name}, {{"status", status}});
  }
  void AddPod(const std::string& name, const json& labels = json::object(), const std::string& node = "", const std::string& cpu = "500m") {
    json pod = {{"apiVersion", "v1"},
                {"kind", "Pod"},
                {"metadata", {{"name", name}, {"namespace", "default"}, {"labels", labels}}},
                {"spec", {{"containers", {{{"name", "c"}, {"resources", {{"requests", {{"cpu", cpu}}}}}}}}}}};
    if (!node.empty()) pod["spec"]["nodeName"] = node;
    ASSERT_TRUE(client_.Create(manifests::kPods, "default", pod.dump()).ok());
  }
  static absl::StatusOr<kube::ObjectPtr> Decode(absl::string_view text) {
    const auto pod = std::make_shared<JobPod>();
    const absl::Status status = ReadJobPod(text, *pod);
    if (!status.ok()) return status;
    return pod;
  }
  void Start() {
    ours_.Start();
    inventory_.Start();
  }
  void Patch(const kube::Resource& resource, const kube::ObjectKey& key, const json& patch) {
    const auto done = client_.Patch(resource, key, kube::PatchType::kMerge, patch.dump(), {.subresource = "status"});
    ASSERT_TRUE(done.ok()) << done.status();
  }
  ~ClusterInventoryTest() override {
    inventory_.Stop();
    ours_.Stop();
  }
  // Threads of informers carry things along: a test waits for what must come, at most a minute.
  bool Eventually(const std::function<bool(const ClusterCapacity&)>& holds) {
    for (int i = 0; i < 60'000; ++i) {
      const auto capacity = inventory_.Capacity();
      if (capacity != nullptr && holds(*capacity)) return true;
      clock_.WaitFor(absl::Milliseconds(1), {});
    }
    return false;
  }

  kube::Clock& clock_ = kube::RealClock();
  kube::testing::FakeApiServer server_{clock_};
  kube::RestClient rest_;
  kube::ApiClient& client_ = rest_;
  std::atomic<int> grew_ = 0;
  kube::Informer ours_{
      client_, clock_, nullptr, {.scope = {.resource = manifests::kPods, .label_selector = "fusionllm.io/origin=hub"}, .decode = Decode}};
  ClusterInventory inventory_{"paris", "hub", ours_, client_, clock_, nullptr, [this] { ++grew_; }};
};

TEST_F(ClusterInventoryTest, SeesNodesAndWhatTheirPodsTake) {
  AddNode("n1");
  AddNode("n2", "False");
  AddPod("theirs", json::object(), "n1");
  AddPod("ours", {{manifests::kOriginLabel, "hub"}, {manifests::kJobUidLabel, "u1"}, {manifests::kRoleLabel, manifests::kExecutorRole}},
         "n1");
  AddPod("waits", {{manifests::kOriginLabel, "hub"}, {manifests::kJobUidLabel, "u1"}, {manifests::kRoleLabel, manifests::kExecutorRole}});
  AddPod("of-another-hub",
         {{manifests::kOriginLabel, "other"}, {manifests::kJobUidLabel, "u2"}, {manifests::kRoleLabel, manifests::kExecutorRole}}, "n2");
  AddPod("elsewhere", json::object(), "n9");
  EXPECT_EQ(inventory_.Capacity(), nullptr) << "nobody has looked yet";
  Start();
  ASSERT_TRUE(Eventually([](const ClusterCapacity& capacity) { return capacity.nodes.size() == 2; }));
  const ClusterCapacity capacity = *inventory_.Capacity();
  EXPECT_EQ(capacity.nodes[0].name, "n1");
  EXPECT_TRUE(capacity.nodes[0].ready);
  EXPECT_EQ(capacity.nodes[0].labels.at("pool"), "a");
  EXPECT_EQ(capacity.nodes[0].allocatable.at("cpu"), 4000);
  EXPECT_EQ(capacity.nodes[0].taken, (kube::ResourceList{{"cpu", 1000}, {"pods", 2}}));
  ASSERT_EQ(capacity.of_jobs.size(), 2);
  const PlacedPod& ours = capacity.of_jobs[capacity.of_jobs[0].job->uid == "u1" ? 0 : 1];
  EXPECT_EQ(ours.job->uid, "u1");
  EXPECT_EQ(ours.node, 0);
  EXPECT_EQ(*ours.requests, (kube::ResourceList{{"cpu", 500}, {"pods", 1}}));
  EXPECT_FALSE(capacity.nodes[1].ready);
  ASSERT_EQ(capacity.waiting.size(), 1);
  EXPECT_EQ(capacity.waiting[0].job->uid, "u1");
  EXPECT_EQ(capacity.pods_of_job.at("u1"), 2);
  EXPECT_EQ(capacity.pods_of_job.at("u2"), 1);
  EXPECT_EQ(capacity.executors, 2);
}

TEST_F(ClusterInventoryTest, NodesAreInTheOrderOfTheirNames) {
  constexpr size_t kMany = 12;  // caches have none: by chance these would not come in order
  for (size_t i = kMany; i > 0; --i) AddNode(absl::StrCat("n", 100 + i));
  Start();
  ASSERT_TRUE(Eventually([](const ClusterCapacity& capacity) { return capacity.nodes.size() == kMany; }));
  const auto capacity = inventory_.Capacity();
  for (size_t i = 0; i < kMany; ++i) EXPECT_EQ(capacity->nodes[i].name, absl::StrCat("n", 101 + i));
}

TEST_F(ClusterInventoryTest, WhatWaitsIsInTheOrderOfItsNames) {
  constexpr size_t kMany = 12;
  for (size_t i = kMany; i > 0; --i) AddPod(absl::StrCat("p", 100 + i), json::object(), "", absl::StrCat(i));
  Start();
  ASSERT_TRUE(Eventually([](const ClusterCapacity& capacity) { return capacity.waiting.size() == kMany; }));
  const auto capacity = inventory_.Capacity();
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(kube::QuantityOf(*capacity->waiting[i].requests, kube::kCpu), 1000 * static_cast<int64_t>(i + 1));
  }
}

TEST_F(ClusterInventoryTest, FinishedPodFreesCapacity) {
  AddNode("n1");
  AddPod("theirs", json::object(), "n1");
  AddPod("ours", {{manifests::kOriginLabel, "hub"}, {manifests::kJobUidLabel, "u1"}, {manifests::kRoleLabel, manifests::kBrokerRole}},
         "n1");
  Start();
  ASSERT_TRUE(Eventually([](const ClusterCapacity& capacity) {
    return capacity.nodes.size() == 1 && kube::QuantityOf(capacity.nodes[0].taken, kube::kPodCount) == 2;
  }));
  // Caches have what is there a moment before they deliver it, and what ends before it was delivered was never there.
  ASSERT_TRUE(inventory_.WaitForSync(absl::Minutes(1)));
  ASSERT_EQ(grew_, 1);
  int before = grew_;
  for (const char* pod : {"theirs", "ours"}) {
    Patch(manifests::kPods, {"default", pod}, {{"status", {{"phase", "Succeeded"}}}});
    EXPECT_TRUE(Eventually([&](const ClusterCapacity&) { return grew_ == before + 1; })) << pod;
    ++before;
  }
  EXPECT_TRUE(Eventually([](const ClusterCapacity& capacity) { return capacity.nodes[0].taken.empty(); }));
  ASSERT_TRUE(client_.Delete(manifests::kPods, {"default", "ours"}, {.grace_period_seconds = 0}).ok());
  EXPECT_TRUE(Eventually([&](const ClusterCapacity& capacity) { return capacity.pods_of_job.empty() && ours_.size() == 0; }));
  EXPECT_EQ(grew_, before) << "what has ended had freed its room before";
}

TEST_F(ClusterInventoryTest, WhatMayNotBeSeenIsNotKnown) {
  server_.AddFault({.verb = "list",
                    .target = "/nodes",
                    .times = 1'000'000,
                    .code = 403,
                    .body = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"no nodes for you"})"});
  Start();
  for (int i = 0; i < 60'000 && inventory_.Status().message().find("no nodes for you") == absl::string_view::npos; ++i) {
    clock_.WaitFor(absl::Milliseconds(1), {});
  }
  EXPECT_THAT(std::string(inventory_.Status().message()), HasSubstr("nodes are not listed yet"));
  EXPECT_EQ(inventory_.Capacity(), nullptr);
}

}  // namespace
}  // namespace fusionllm::op::cache
