#include "operator/federation/cluster_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/kubeapi/fusion_job_status.h"

namespace fusionllm::op::federation {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ClusterFactsTest, SelectorsMayNameWhatTheSpecSays) {
  kubeapi::FusionCluster cluster;
  cluster.spec.region = "eu-west";
  cluster.spec.provider = "acme";
  cluster.spec.on_demand = true;
  cluster.spec.network.address = "203.0.113.9";
  cluster.spec.network.links = {{.to = "oslo", .bandwidth = {20'000'000}, .latency = {15'000'000}}};
  cluster.spec.network.egress = job::Bandwidth{8'000'000};
  const cache::ClusterFacts facts = FactsOf({.name = "paris", .labels = {{"tier", "gold"}}}, cluster);
  EXPECT_THAT(facts.labels, UnorderedElementsAre(Pair("tier", "gold"), Pair("fusionllm.io/cluster", "paris"),
                                                 Pair("topology.kubernetes.io/region", "eu-west"), Pair("fusionllm.io/provider", "acme")));
  EXPECT_EQ(facts.address, "203.0.113.9");
  EXPECT_DOUBLE_EQ(facts.links.at("oslo").bytes_per_s, 2.5e6);
  EXPECT_DOUBLE_EQ(facts.links.at("oslo").latency_s, 0.015);
  EXPECT_DOUBLE_EQ(facts.egress_bytes_per_s, 1e6);
  EXPECT_EQ(facts.ingress_bytes_per_s, 0);
  EXPECT_TRUE(facts.on_demand);
  EXPECT_FALSE(facts.local);
  EXPECT_FALSE(facts.leaving);
}

cache::NodeCapacity Node(bool ready, const std::string& product, int64_t gpus) {
  cache::NodeCapacity node{.name = "n", .ready = ready};
  node.allocatable = {{"cpu", 4000}, {"memory", (int64_t{8} << 30) + 5}, {"pods", 110}};
  node.taken = {{"cpu", 1500}, {"memory", int64_t{1} << 30}, {"pods", 2}};
  if (gpus > 0) {
    node.allocatable["nvidia.com/gpu"] = gpus;
    node.taken["nvidia.com/gpu"] = 1;
  }
  if (!product.empty()) node.labels["nvidia.com/gpu.product"] = product;
  return node;
}

TEST(ClusterFactsTest, TheSummaryIsOfNodesThatTakePods) {
  cache::ClusterCapacity capacity;
  capacity.nodes = {Node(true, "NVIDIA-L4", 4), Node(true, "NVIDIA-L4", 2), Node(true, "", 1), Node(false, "NVIDIA-L4", 8)};
  const kubeapi::ResourceSummary summary = SummaryOf(capacity);
  EXPECT_EQ(summary.nodes, 4);
  EXPECT_EQ(summary.ready_nodes, 3);
  EXPECT_EQ(summary.allocatable_millicpus, 12000);
  EXPECT_EQ(summary.allocated_millicpus, 4500);
  EXPECT_EQ(summary.allocatable_memory->bytes, int64_t{24} << 30) << "whole Mi";
  EXPECT_EQ(summary.allocated_memory->bytes, int64_t{3} << 30);
  EXPECT_THAT(summary.devices, ElementsAre(kubeapi::DeviceSummary{"NVIDIA-L4", 6, 2}, kubeapi::DeviceSummary{"nvidia.com/gpu", 1, 1}));
}

kubeapi::FusionClusterStatus Status(std::vector<std::pair<absl::string_view, bool>> conditions) {
  kubeapi::FusionClusterStatus status;
  for (const auto& [type, holds] : conditions) {
    status.conditions.push_back({.type = std::string(type),
                                 .status = holds ? kubeapi::ConditionStatus::kTrue : kubeapi::ConditionStatus::kFalse,
                                 .reason = absl::StrCat(type, holds ? "Now" : "NoMore")});
  }
  return status;
}

std::vector<std::string> NewsBetween(const kubeapi::FusionClusterStatus& before, const kubeapi::FusionClusterStatus& next) {
  std::vector<std::string> news;
  for (const lifecycle::EventRecord& note : EventsForClusterTransition(before, next)) {
    news.push_back(absl::StrCat(note.warning ? "warning " : "", note.reason, ": ", note.message));
  }
  return news;
}

TEST(ClusterFactsTest, NewsIsWhatHasTurnedAndOfTheFirstWordsWhatIsBadOrAConnection) {
  using kubeapi::kConflict, kubeapi::kConnected, kubeapi::kControlPlaneHealthy, kubeapi::kCredentialsValid;
  const auto good = Status({{kCredentialsValid, true}, {kConflict, false}, {kControlPlaneHealthy, true}, {kConnected, true}});
  const auto bad = Status({{kCredentialsValid, false}, {kConflict, true}, {kControlPlaneHealthy, false}, {kConnected, false}});
  EXPECT_THAT(NewsBetween({}, good), ElementsAre("ConnectedNow: Connected is True now."));
  EXPECT_THAT(NewsBetween(good, good), ElementsAre());
  const std::vector<std::string> all_bad = {
      "warning ConnectedNoMore: Connected is False now.", "warning CredentialsValidNoMore: CredentialsValid is False now.",
      "warning ConflictNow: Conflict is True now.", "warning ControlPlaneHealthyNoMore: ControlPlaneHealthy is False now."};
  EXPECT_EQ(NewsBetween({}, bad), all_bad);
  EXPECT_EQ(NewsBetween(good, bad), all_bad);
  EXPECT_THAT(NewsBetween(bad, good),
              ElementsAre("ConnectedNow: Connected is True now.", "CredentialsValidNow: CredentialsValid is True now.",
                          "ConflictNoMore: Conflict is False now.", "ControlPlaneHealthyNow: ControlPlaneHealthy is True now."));
  kubeapi::FusionClusterStatus said = bad;
  said.conditions.back().message = "no route";
  EXPECT_THAT(NewsBetween(good, said), ::testing::Contains("warning ConnectedNoMore: no route"));
}

}  // namespace
}  // namespace fusionllm::op::federation
