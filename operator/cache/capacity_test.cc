#include "operator/cache/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::op::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kGibibyte = int64_t{1} << 30;

class CapacityTest : public ::testing::Test {
 protected:
  NodeCapacity& AddNode(int64_t cpus, int64_t gibibytes = 64) {
    NodeCapacity& node = cluster_.nodes.emplace_back();
    node.name = absl::StrCat("n", cluster_.nodes.size());
    node.ready = true;
    node.allocatable = {{"cpu", cpus * 1000}, {"memory", gibibytes * kGibibyte}, {"pods", 110}};
    return node;
  }
  static JobRefPtr Job(const std::string& uid) { return std::make_shared<const JobRef>(JobRef{.uid = uid}); }
  static std::shared_ptr<const kube::ResourceList> Requests(int64_t millicpus) {
    return std::make_shared<const kube::ResourceList>(kube::ResourceList{{"cpu", millicpus}, {"pods", 1}});
  }
  FreeCapacity Find(const std::string& job = "me") const { return FreeCapacityFor(shape_, cluster_, job, reserved_); }

  ClusterCapacity cluster_;
  PodRequirements shape_{.requests = {{"cpu", 2000}, {"memory", kGibibyte}, {"pods", 1}}};
  std::vector<SharedResourceList> reserved_;
};

TEST_F(CapacityTest, RoomIsCountedNodeByNode) {
  AddNode(5);  // two pods, and a core that is of no use
  AddNode(3);
  AddNode(8).taken = {{"cpu", 4500}, {"pods", 3}};
  const FreeCapacity room = Find();
  EXPECT_EQ(room.pods, 4);
  EXPECT_EQ(room.nodes, 3);
  EXPECT_EQ(room.shortage, "3 nodes: 3 with too little cpu (most free: 1.5 cpu)");
  cluster_.nodes[0].ready = false;
  EXPECT_THAT(Find().by_node, ElementsAre(std::pair(1, 1), std::pair(2, 1)));
}

TEST_F(CapacityTest, WhatIsScarcestBounds) {
  AddNode(64, 3);
  EXPECT_EQ(Find().pods, 3);
  EXPECT_THAT(Find().shortage, HasSubstr("too little memory"));
  cluster_.nodes[0].allocatable["pods"] = 2;
  EXPECT_EQ(Find().pods, 2);
  shape_.requests["nvidia.com/gpu"] = 1;
  EXPECT_EQ(Find().pods, 0);
  EXPECT_THAT(Find().shortage, HasSubstr("too little nvidia.com/gpu (most free: 0 nvidia.com/gpu)"));
}

TEST_F(CapacityTest, OfManyCordonedNodesTheFirstAreNamed) {
  AddNode(2);
  EXPECT_EQ(UnavailableNodes(cluster_), "");
  for (int i = 0; i < 5; ++i) AddNode(2).unschedulable = true;
  EXPECT_EQ(UnavailableNodes(cluster_), " (cordoned: n2, n3, n4 ...)");
  EXPECT_THAT(Find().shortage, HasSubstr("5 cordoned (n2, n3, n4 ...)"));
}

TEST_F(CapacityTest, NodesThatAreNotReadyAreNamedBesideThoseThatAreCordoned) {
  AddNode(2).ready = false;
  EXPECT_EQ(UnavailableNodes(cluster_), " (not ready: n1)");
  AddNode(2).unschedulable = true;
  NodeCapacity& both = AddNode(2);
  both.ready = false;
  both.unschedulable = true;
  EXPECT_EQ(UnavailableNodes(cluster_), " (not ready: n1, n3; cordoned: n2)");
}

TEST_F(CapacityTest, NodesThatTakeNoPodsAreNamed) {
  AddNode(2);
  AddNode(2).ready = false;
  AddNode(2).unschedulable = true;
  AddNode(2).taints = {{"gpu", "yes", "NoSchedule"}};
  AddNode(2).taints = {{"gpu", "yes", "PreferNoSchedule"}};
  EXPECT_EQ(Find().pods, 2);
  EXPECT_EQ(Find().shortage, "5 nodes: 1 cordoned (n3), 1 not ready (n2), 1 with the taint gpu, 2 with too little cpu (most free: 0 cpu)");
  shape_.tolerations = {{"gpu", "Equal", "yes", "NoSchedule"}};
  EXPECT_EQ(Find().pods, 3);
  shape_.tolerations = {{"gpu", "Equal", "no", ""}};
  EXPECT_EQ(Find().pods, 2);
  shape_.tolerations = {{"", "Exists", "", ""}};
  EXPECT_EQ(Find().pods, 3);
}

TEST_F(CapacityTest, SelectorsAndAffinityAreHeeded) {
  AddNode(2).labels = {{"pool", "a"}};
  AddNode(2).labels = {{"pool", "b"}};
  shape_.node_selector = {{"pool", "In", {"a"}}};
  EXPECT_EQ(Find().pods, 1);
  EXPECT_THAT(Find().shortage, HasSubstr("1 that the node selector pool=a leaves out"));
  shape_.node_selector.clear();
  shape_.has_affinity = true;
  EXPECT_EQ(Find().pods, 0) << "an affinity without terms";
  shape_.affinity = {{.labels = {{"pool", "In", {"c"}}}}, {.labels = {}, .fields = {{"metadata.name", "In", {"n2"}}}}};
  EXPECT_EQ(Find().pods, 1);
  EXPECT_THAT(Find().shortage, HasSubstr("1 that the node affinity leaves out"));
}

TEST_F(CapacityTest, OnesOwnPodsMakeWayForThoseToCome) {
  NodeCapacity& node = AddNode(4);
  node.taken = {{"cpu", 4000}, {"pods", 2}};
  cluster_.of_jobs = {{Job("me"), 0, Requests(2000)}};
  EXPECT_EQ(Find("me").pods, 1);
  EXPECT_EQ(Find("other").pods, 0);
}

TEST_F(CapacityTest, PodsThatWaitAndRoomThatIsPromisedAreTaken) {
  AddNode(2);
  AddNode(4);
  cluster_.waiting = {{Job("other"), Requests(1500)}, {Job("me"), Requests(1500)}};
  EXPECT_EQ(Find().pods, 2) << "one's own are not counted";
  reserved_ = {std::make_shared<const kube::ResourceList>(kube::ResourceList{{"cpu", 2000}, {"pods", 1}})};
  EXPECT_EQ(Find().pods, 1);
}

TEST_F(CapacityTest, AClusterWithoutNodesSaysSo) { EXPECT_EQ(Find().shortage, "no nodes"); }

TEST_F(CapacityTest, DevicesAreFoundByTheWordsOfTheirNames) {
  AddNode(2).labels = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}, {"nvidia.com/gpu.memory", "81559"}};
  AddNode(2).labels = {{"nvidia.com/gpu.product", "NVIDIA-L40"}};
  AddNode(2).labels = {{"fusionllm.io/device", "xeon"}};
  const auto values = [&](const char* device, int64_t memory = 0) { return FindDevice(device, memory, cluster_).values; };
  EXPECT_THAT(values("h100"), ElementsAre("NVIDIA-H100-80GB-HBM3"));
  EXPECT_THAT(values("nvidia"), ElementsAre("NVIDIA-H100-80GB-HBM3", "NVIDIA-L40"));
  EXPECT_THAT(values("h100-80gb"), ElementsAre("NVIDIA-H100-80GB-HBM3"));
  EXPECT_THAT(values("l4"), ElementsAre()) << "L40 is another";
  EXPECT_EQ(FindDevice("h100", 0, cluster_).resource, "nvidia.com/gpu");
  EXPECT_EQ(FindDevice("Xeon", 0, cluster_).label, "fusionllm.io/device");
  EXPECT_EQ(FindDevice("Xeon", 0, cluster_).resource, "");
  EXPECT_THAT(values("h100", 80 * kGibibyte), ElementsAre()) << "it has a little less than 80 GiB";
  EXPECT_THAT(values("h100", 70 * kGibibyte), ElementsAre("NVIDIA-H100-80GB-HBM3"));
  EXPECT_EQ(FindDevice("h100", 70 * kGibibyte, cluster_).memory_label, "nvidia.com/gpu.memory");
  EXPECT_THAT(DeviceNames(cluster_), ElementsAre("NVIDIA-H100-80GB-HBM3", "NVIDIA-L40", "xeon"));
}

}  // namespace
}  // namespace fusionllm::op::cache
