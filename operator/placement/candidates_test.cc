// What clusters provide for a job, by what their nodes have.
#include "operator/placement/candidates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "operator/placement/placer.h"

namespace fusionllm::op::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class FakeMember : public cache::Member {
 public:
  explicit FakeMember(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  bool reachable() const override { return reachable_; }
  bool lost() const override { return false; }
  kube::ApiClient& client() const override { std::abort(); }
  std::vector<lifecycle::PodView> PodsOf(const manifests::JobIdentity&) const override { return {}; }
  std::optional<cache::OwnerConfigMapView> OwnerConfigMapOf(const manifests::JobIdentity&) const override { return std::nullopt; }
  std::vector<cache::OwnerConfigMapView> OwnerConfigMaps() const override { return {}; }
  void Wrote(const std::string&, const kube::Resource&, const std::string&) override {}
  bool SeenWrites(const std::string&) override { return true; }
  std::shared_ptr<const cache::ClusterCapacity> Capacity() const override { return capacity_; }

  // Nodes of so many processors each.
  cache::ClusterCapacity& Have(int nodes, int64_t cpus) {
    auto capacity = std::make_shared<cache::ClusterCapacity>();
    for (int i = 0; i < nodes; ++i) {
      cache::NodeCapacity& node = capacity->nodes.emplace_back();
      node.name = absl::StrCat("n", i);
      node.ready = true;
      node.allocatable = {{"cpu", cpus * 1000}, {"memory", int64_t{64} << 30}, {"pods", 110}};
    }
    capacity_ = capacity;
    return *capacity;
  }

  bool reachable_ = true;
  std::shared_ptr<cache::ClusterCapacity> capacity_;

 private:
  const std::string name_;
};

class CandidatesTest : public ::testing::Test, public cache::Members {
 protected:
  CandidatesTest() {
    job_.spec.executors.pod_template.json =
        R"({"spec":{"containers":[{"name":"executor","resources":{"requests":{"cpu":"2","memory":"1Gi"}}}]}})";
    hub_.Have(1, 5);  // the scheduler beside the broker takes some
    paris_->Have(2, 4);
  }
  std::vector<std::shared_ptr<cache::Member>> Remote() const override { return {paris_}; }
  std::optional<std::string> LocalName() const override { return lends_ ? std::optional<std::string>("home") : std::nullopt; }
  std::map<std::string, absl::Duration> Connecting() const override { return {}; }
  void ForEachCluster(absl::FunctionRef<void(const cache::ClusterFacts&)> look) const override {
    look(paris_facts_);
    if (lends_) look({.name = "home", .local = true, .on_demand = home_on_demand_});
  }

  CandidatesRequest Request(const std::string& uid = "u1") const {
    return {
        .identity = {.name = "train", .ns = "team", .uid = uid, .origin = "hub"}, .job = &job_, .images = &images_, .avoided = avoided_};
  }
  std::vector<ClusterCandidate> Offers() { return Candidates(Request(), hub_, *this, nullptr); }
  ClusterCandidate Paris() { return Offers().at(1); }

  job::FusionJob job_;
  manifests::Images images_{"b", "s", "e", ""};
  std::map<std::string, std::string> avoided_;
  bool lends_ = true, home_on_demand_ = false;  // the hub
  FakeMember hub_{"hub"};
  std::shared_ptr<FakeMember> paris_ = std::make_shared<FakeMember>("paris");
  cache::ClusterFacts paris_facts_{.name = "paris", .labels = {{"tier", "gold"}}};
};

TEST_F(CandidatesTest, TheHubFirstThenTheOthersWithTheRoomTheyHave) {
  const std::vector<ClusterCandidate> candidates = Offers();
  ASSERT_EQ(candidates.size(), 2);
  EXPECT_EQ(candidates[0].name, "home");
  EXPECT_EQ(candidates[0].room, 2);
  EXPECT_EQ(candidates[1].name, "paris");
  EXPECT_EQ(candidates[1].room, 4);
  EXPECT_EQ(candidates[1].devices, 2) << "without accelerators a device is a node";
  EXPECT_EQ(candidates[1].labels.at("tier"), "gold");
  EXPECT_THAT(candidates[1].products, ElementsAre(std::pair("", 4)));
  EXPECT_EQ(candidates[1].shortage, "each asks for 2 cpu, 1Gi memory; 2 nodes: 2 with too little cpu (most free: 0 cpu)");
}

TEST_F(CandidatesTest, AMemberWhoseNodesAreNotKnownIsCountedOnAllTheSame) {
  paris_->capacity_ = nullptr;
  EXPECT_EQ(Paris().room, std::nullopt);
  EXPECT_EQ(Paris().closed, "");
}

TEST_F(CandidatesTest, WhereNodesAreMadeOnDemandThereIsAlwaysRoom) {
  paris_facts_.on_demand = true;
  EXPECT_EQ(Paris().room, std::nullopt);
}

TEST_F(CandidatesTest, CountsTemplateAcceleratorsByKind) {
  job_.spec.executors.pod_template.json = R"({"spec":{"containers":[{"name":"executor","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}})";
  cache::ClusterCapacity& capacity = paris_->Have(3, 8);
  for (const auto& [node, product] : {std::pair(0, "NVIDIA-L4"), std::pair(1, "Tesla-T4")}) {
    capacity.nodes[node].labels["nvidia.com/gpu.product"] = product;
    capacity.nodes[node].allocatable["nvidia.com/gpu"] = 2;
  }
  EXPECT_THAT(Paris().products, ElementsAre(std::pair("NVIDIA-L4", 2), std::pair("Tesla-T4", 2)));
  paris_facts_.on_demand = true;
  EXPECT_THAT(Paris().products, ElementsAre(std::pair("NVIDIA-L4", 0), std::pair("Tesla-T4", 0), std::pair("nvidia.com/gpu", 0)));
}

TEST_F(CandidatesTest, WhyAClusterIsClosedIsSaid) {
  paris_->reachable_ = false;
  EXPECT_EQ(Paris().closed, "cannot be reached");
  paris_->reachable_ = true;
  avoided_["paris"] = "was left, by rule spot";
  EXPECT_EQ(Paris().closed, "was left, by rule spot");
  paris_facts_.leaving = true;
  EXPECT_EQ(Paris().closed, "is being removed");
}

TEST_F(CandidatesTest, ADeviceIsLookedForAndAskedFor) {
  job_.spec.placement.device = "l4";
  EXPECT_THAT(Paris().closed, HasSubstr("has no device l4; its nodes have: none that are labelled"));
  cache::ClusterCapacity& capacity = paris_->Have(3, 8);
  capacity.nodes[0].labels["nvidia.com/gpu.product"] = "NVIDIA-L4";
  capacity.nodes[0].allocatable["nvidia.com/gpu"] = 3;
  capacity.nodes[1].labels["nvidia.com/gpu.product"] = "NVIDIA-H100";
  capacity.nodes[1].allocatable["nvidia.com/gpu"] = 8;
  EXPECT_EQ(Paris().closed, "");
  EXPECT_EQ(Paris().room, 3);
  EXPECT_EQ(Paris().devices, 3) << "accelerators";
  EXPECT_THAT(Paris().products, ElementsAre(std::pair("NVIDIA-L4", 3)));
  job_.spec.placement.device = "h200";
  EXPECT_THAT(Paris().closed, HasSubstr("its nodes have: NVIDIA-H100, NVIDIA-L4"));
  paris_->capacity_ = nullptr;
  EXPECT_THAT(Paris().closed, HasSubstr("does not tell what its nodes have"));
}

TEST_F(CandidatesTest, MinMemoryIsWhatEachAsksFor) {
  job_.spec.executors.pod_template.json.clear();
  job_.spec.placement.min_memory = job::ByteSize{int64_t{40} << 30};
  EXPECT_EQ(Paris().room, 2);
}

TEST_F(CandidatesTest, ExecutorsThatReadTheGraphFromTheDataGoWhereTheDataIs) {
  job_.spec.model.graph = job::GraphSource{.file = "model.dag"};
  job_.spec.data.clusters = {"home"};
  EXPECT_THAT(Paris().closed, HasSubstr("spec.model.graph.file"));
  EXPECT_EQ(Offers().at(0).closed, "");
  job_.spec.data.clusters = {"paris"};
  Placer placer(hub_, *this);
  EXPECT_THAT(placer.Propose(Request(), false).problem, HasSubstr("the hub, home, must be among them"));
  // In a volume of its own it is wherever its volume is.
  job_.spec.model.graph->volume.json = R"({"configMap": {"name": "nets"}})";
  EXPECT_EQ(placer.Propose(Request(), false).problem, "");
  job_.spec.data.clusters = {"home"};
  EXPECT_EQ(Paris().closed, "");
}

TEST_F(CandidatesTest, TwoJobsPlacedAtOnceDoNotTakeTheSameRoom) {
  Placer placer(hub_, *this);
  job_.spec.executors.replicas = 4;
  job_.spec.executors.min = 4;
  EXPECT_THAT(placer.Propose(Request("first"), /*reserve=*/true).slots, Not(IsEmpty()));
  const Placement second = placer.Propose(Request("second"), /*reserve=*/true);
  EXPECT_THAT(second.slots, IsEmpty());
  EXPECT_THAT(second.problem, HasSubstr("2 of the 4 executors that must train find room. home: room for 0; each asks for 2 cpu"));
  EXPECT_THAT(placer.Propose(Request("first"), /*reserve=*/true).slots, Not(IsEmpty())) << "its own is its own";
}

// The planner would refuse the attempt, and the job would have failed for good because others were there for a moment.
TEST_F(CandidatesTest, AFirstAttemptWaitsForAsManyAsItHasStages) {
  Placer placer(hub_, *this);
  job_.spec.executors.replicas = 3;
  EXPECT_THAT(placer.Propose(Request("other"), /*reserve=*/true).slots, SizeIs(3));
  job_.spec.executors.replicas.reset();
  job_.spec.strategy.stages = 4;
  const Placement waits = placer.Propose(Request("staged"), /*reserve=*/false);
  EXPECT_THAT(waits.slots, IsEmpty());
  EXPECT_THAT(waits.problem, HasSubstr("3 of the 4 executors that must train find room."));
  EXPECT_THAT(waits.problem, EndsWith(". spec.strategy.stages asks for 4"));
  job_.spec.strategy.stages = 2;
  job_.spec.strategy.replicas = 2;
  EXPECT_THAT(placer.Propose(Request("pairs"), /*reserve=*/false).problem, EndsWith(". spec.strategy asks for 2 replicas of 2 stages: 4"));
  job_.spec.strategy.stages = 0;
  job_.spec.strategy.replicas = 4;
  EXPECT_THAT(placer.Propose(Request("wide"), /*reserve=*/false).problem, EndsWith(". spec.strategy asks for 4 replicas: 4"));
  job_.spec.strategy.stages = 4;
  job_.spec.strategy.replicas = 1;
  job_.spec.executors.replicas = 4;
  EXPECT_THAT(placer.Propose(Request("staged"), /*reserve=*/false).problem, HasSubstr("3 of the 4 executors that must train find room."));
  job_.spec.executors.replicas = 2;
  EXPECT_THAT(placer.Propose(Request("staged"), /*reserve=*/false).slots, SizeIs(2))
      << "what a job contradicts itself in, the planner says";
  job_.spec.executors.replicas.reset();
  CandidatesRequest again = Request("staged");
  again.attempt = 1;
  EXPECT_THAT(placer.Propose(again, /*reserve=*/false).slots, SizeIs(3)) << "a later one has its strategy fitted";
}

TEST_F(CandidatesTest, ABrokerWithoutRoomOnTheHubIsSaidWhetherThatLendsDevicesOrNot) {
  Placer placer(hub_, *this);
  job_.spec.executors.replicas = 2;
  job_.spec.broker.pod_template.json = R"({"spec":{"containers":[{"name":"broker","resources":{"requests":{"cpu":"6","memory":"1Gi"}}}]}})";
  job_.spec.strategy.stages = 2;
  EXPECT_THAT(placer.Propose(Request(), /*reserve=*/true).problem, Not(HasSubstr("stages")));
  EXPECT_THAT(placer.Propose(Request(), /*reserve=*/true).problem,
              HasSubstr("the broker finds no room on the hub, home: it asks for 6.05 cpu, 1.1Gi memory; 1 node: 1 with too little cpu"));
  lends_ = false;
  const Placement refused = placer.Propose(Request("other"), /*reserve=*/true);
  EXPECT_THAT(refused.problem, HasSubstr("the broker finds no room on the hub: it asks for 6.05 cpu"));
  EXPECT_THAT(refused.slots, IsEmpty());
  EXPECT_EQ(refused.wanted, 2);
  hub_.Have(1, 7);
  EXPECT_THAT(placer.Propose(Request(), /*reserve=*/true).slots, Not(IsEmpty()));
  EXPECT_THAT(placer.Propose(Request("third"), /*reserve=*/true).problem, HasSubstr("the broker finds no room on the hub"))
      << "which is taken by that of the first, whose Pod is not there yet";
}

TEST_F(CandidatesTest, WhereTheHubsNodesAreNotKnownOrMadeOnDemandItsBrokerIsPlaced) {
  Placer placer(hub_, *this);
  job_.spec.broker.pod_template.json = R"({"spec":{"containers":[{"name":"broker","resources":{"requests":{"cpu":"600"}}}]}})";
  const auto placed = [&](bool hub_on_demand) {
    CandidatesRequest request = Request();
    request.hub_on_demand = hub_on_demand;
    return !placer.Propose(request, false).slots.empty();
  };
  EXPECT_FALSE(placed(true)) << "a hub that lends devices says it of itself";
  home_on_demand_ = true;
  EXPECT_TRUE(placed(false));
  lends_ = false;
  EXPECT_FALSE(placed(false));
  EXPECT_TRUE(placed(true));
  hub_.capacity_ = nullptr;
  EXPECT_TRUE(placed(false));
}

TEST_F(CandidatesTest, ATemplateThatCannotBeIsSaid) {
  job_.spec.executors.pod_template.json = R"({"spec":7})";
  Placer placer(hub_, *this);
  EXPECT_THAT(placer.Propose(Request(), false).problem, HasSubstr("spec.executors.template.spec"));
}

}  // namespace
}  // namespace fusionllm::op::placement
