#include "lib/kube/watch/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;

const Node& Decode(const std::string& json, ObjectPtr& keep) {
  const auto decoded = DecodeNode(json);
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  keep = decoded.value_or(std::make_shared<Node>());
  return dynamic_cast<const Node&>(*keep);
}

TEST(NodeTest, TellsWhatItsPodsMayUse) {
  ObjectPtr keep;
  const Node& node = Decode(R"({"metadata":{"name":"n1","resourceVersion":"5","labels":{"nvidia.com/gpu.product":"NVIDIA-L4"}},
    "spec":{"unschedulable":true,"taints":[{"key":"gpu","value":"yes","effect":"NoSchedule"},{"key":"slow","effect":"NoExecute"}]},
    "status":{"allocatable":{"cpu":"3920m","memory":"16Gi","pods":110,"nvidia.com/gpu":"2","strange":"lots"},
      "conditions":[{"type":"MemoryPressure","status":"True"},{"type":"Ready","status":"True"}],"nodeInfo":{"kubeletVersion":"v1.31.2"}}})",
                            keep);
  EXPECT_EQ(node.meta.Label("nvidia.com/gpu.product"), "NVIDIA-L4");
  EXPECT_TRUE(node.ready);
  EXPECT_TRUE(node.unschedulable);
  EXPECT_THAT(node.taints, ElementsAre(Taint{"gpu", "yes", "NoSchedule"}, Taint{"slow", "", "NoExecute"}));
  EXPECT_EQ(node.allocatable, (ResourceList{{"cpu", 3920}, {"memory", int64_t{16} << 30}, {"pods", 110}, {"nvidia.com/gpu", 2}}));
  EXPECT_EQ(node.kubelet_version, "v1.31.2");
}

TEST(NodeTest, OneThatDoesNotSayIsNotReady) {
  ObjectPtr keep;
  EXPECT_FALSE(Decode(R"({"metadata":{"name":"n1","resourceVersion":"5"}})", keep).ready);
  EXPECT_FALSE(
      Decode(R"({"metadata":{"name":"n1","resourceVersion":"5"},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}})", keep)
          .ready);
}

TEST(NodeTest, SaysSinceWhenItIsAway) {
  ObjectPtr keep;
  const auto since = [&](const char* status, const char* time) {
    return Decode(
               absl::StrCat(R"({"metadata":{"name":"n1","resourceVersion":"5"},"status":{"conditions":[{"type":"Ready","status":")", status,
                            R"(","lastTransitionTime":")", time, R"("},{"type":"Z","lastTransitionTime":"2020-01-01T00:00:00Z"}]}})"),
               keep)
        .away_since;
  };
  const absl::Time at = absl::FromCivil(absl::CivilSecond(2026, 11, 21, 10, 0, 0), absl::UTCTimeZone());
  EXPECT_EQ(since("Unknown", "2026-11-21T10:00:00Z"), at);
  EXPECT_EQ(since("False", "2026-11-21T10:00:00Z"), at);
  EXPECT_EQ(since("True", "2026-11-21T10:00:00Z"), absl::InfiniteFuture());
  EXPECT_EQ(since("Unknown", "long ago"), absl::InfiniteFuture());
}

TEST(NodeTest, NoNodesAreRefused) {
  EXPECT_FALSE(DecodeNode("[]").ok());
  EXPECT_FALSE(DecodeNode(R"({"spec":{}})").ok());
  EXPECT_FALSE(DecodeNode(R"({"metadata":{"name":"n1","resourceVersion":"5"},"spec":{"taints":7}})").ok());
}

}  // namespace
}  // namespace fusionllm::kube
