#include "operator/placement/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace fusionllm::op::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Names(const Placement& placement) {
  std::vector<std::string> names;
  for (const manifests::ExecutorSlot& slot : placement.slots)
    names.push_back(absl::StrCat(manifests::DeviceName(slot), slot.spare ? " spare" : ""));
  return names;
}

class PlacementTest : public ::testing::Test {
 protected:
  // A cluster without a number here has room for all.
  Placement Full(const std::vector<std::string>& clusters) {
    std::vector<ClusterCandidate> candidates;
    for (const std::string& name : clusters) {
      ClusterCandidate& candidate =
          candidates.emplace_back(ClusterCandidate{.name = name, .labels = labels_[name], .closed = closed_[name]});
      if (room_.contains(name)) {
        candidate.room = room_[name];
        candidate.devices = devices_.contains(name) ? devices_[name] : room_[name];
        candidate.shortage = "short of cpu";
      }
    }
    return op::placement::Place(job_, candidates, ranking_);
  }
  std::vector<std::string> Place(const std::vector<std::string>& clusters) { return Names(Full(clusters)); }
  std::string Problem(const std::vector<std::string>& clusters) {
    const Placement placement = Full(clusters);
    EXPECT_THAT(placement.slots, IsEmpty());
    return placement.problem;
  }
  job::Executors& executors() { return job_.spec.executors; }
  job::Placement& placement_spec() { return job_.spec.placement; }
  job::FusionJob job_;
  std::map<std::string, int64_t> room_, devices_;
  std::map<std::string, std::map<std::string, std::string>> labels_;
  std::map<std::string, std::string> closed_;
  Ranking ranking_;
};

TEST_F(PlacementTest, ItHasPartsInNoMoreClustersThanItsStatusCanName) {
  const auto place = [&](int clusters, int64_t more, int named) {
    std::vector<ClusterCandidate> candidates;
    for (int i = 0; i < clusters; ++i) candidates.push_back({.name = absl::StrCat("c", i), .named = i >= clusters - named, .room = 2});
    return op::placement::Place(job_, candidates, ranking_, more);
  };
  const auto used = [](const Placement& placement) {
    std::set<std::string> clusters;
    for (const manifests::ExecutorSlot& slot : placement.slots) clusters.insert(slot.cluster);
    return clusters;
  };
  placement_spec().spread = job::Spread::kEven;
  executors().replicas = 5;
  executors().min = 1;
  EXPECT_THAT(used(place(5, 3, 0)), ElementsAre("c0", "c1", "c2"));
  EXPECT_EQ(place(5, 3, 0).shortage, "") << "there is room for all in these";
  EXPECT_THAT(used(place(5, 3, 1)), ElementsAre("c0", "c1", "c2", "c4")) << "one that is named already counts already";
  EXPECT_THAT(place(5, 2, 0).shortage, HasSubstr("4 of 5 executors find room. A job has parts in 64 clusters at most"));
  executors().min = 5;
  EXPECT_THAT(place(5, 2, 0).problem, HasSubstr("4 of the 5 executors that must train find room. A job has parts in 64 clusters at most"));
  EXPECT_THAT(place(5, 0, 0).problem, HasSubstr("A job has parts in 64 clusters at most"));
  executors().spares = 5;
  EXPECT_THAT(used(place(5, 3, 0)), ElementsAre("c0", "c1", "c2")) << "nor do spares";
  executors().spares = 0;
  placement_spec().clusters = {{.name = "c0", .min = 1}, {.name = "c1", .min = 1}, {.name = "c2", .min = 1}};
  executors().min = 1;
  EXPECT_THAT(place(3, 2, 0).problem,
              HasSubstr("spec.placement.clusters: c2 must have 1 executor. A job has parts in 64 clusters at most"));
  EXPECT_THAT(used(place(3, 2, 1)), ElementsAre("c0", "c1", "c2"));
}

TEST_F(PlacementTest, AJobWithoutANumberThatWantsToBeFastHasAsManyAsThePlan) {
  room_ = devices_ = {{"oslo", 2}, {"paris", 3}};
  placement_spec().spread = job::Spread::kFastest;
  ranking_ = {{"paris", 2}};
  EXPECT_THAT(Place({"oslo", "paris"}), ElementsAre("paris-0", "paris-1"));
  EXPECT_EQ(Full({"oslo", "paris"}).wanted, 2);
  executors().min = 3;
  EXPECT_THAT(Place({"oslo", "paris"}), ElementsAre("paris-0", "paris-1", "paris-2")) << "no fewer than it must have";
  executors().min = 1;
  ranking_.clear();
  EXPECT_EQ(Place({"oslo", "paris"}).size(), 5) << "nobody knows: all there are";
  ranking_ = {{"paris", 2}};
  placement_spec().spread = job::Spread::kAuto;
  EXPECT_EQ(Place({"oslo", "paris"}).size(), 5) << "who does not ask for the fastest has all there are";
}

TEST_F(PlacementTest, AJobWithoutANumberIsAskedAboutWhereItWantsToBeFast) {
  std::vector<ClusterCandidate> candidates = {{.name = "oslo", .room = 2, .devices = 2}, {.name = "paris", .room = 3, .devices = 3}};
  EXPECT_THAT(SearchSpaceOf(job_, candidates).clusters, IsEmpty());
  for (ClusterCandidate& candidate : candidates) candidate.room = 9;
  placement_spec().spread = job::Spread::kFastest;
  const SearchSpace space = SearchSpaceOf(job_, candidates);
  ASSERT_EQ(space.clusters.size(), 2);
  EXPECT_EQ(space.wanted, 5);
  EXPECT_EQ(space.clusters[0].max_count, 2) << "a device each, though there is room for more";
  EXPECT_EQ(space.clusters[1].max_count, 3);
  executors().min = 5;
  EXPECT_THAT(SearchSpaceOf(job_, candidates).clusters, IsEmpty()) << "it must have all";
}

TEST_F(PlacementTest, ARankingSaysWhoGetsHowMany) {
  executors().replicas = 4;
  room_ = {{"oslo", 9}, {"paris", 9}, {"tokyo", 3}};
  ranking_ = {{"tokyo", 2}, {"oslo", 1}};
  EXPECT_THAT(Place({"oslo", "paris", "tokyo"}), ElementsAre("tokyo-0", "tokyo-1", "tokyo-2", "oslo-0")) << "one more than planned";
  executors().replicas = 3;
  EXPECT_THAT(Place({"oslo", "paris", "tokyo"}), ElementsAre("tokyo-0", "tokyo-1", "oslo-0"));
  room_["tokyo"] = 1;  // somebody took it meanwhile
  EXPECT_THAT(Place({"oslo", "paris", "tokyo"}), ElementsAre("tokyo-0", "oslo-0", "oslo-1"));
}

TEST_F(PlacementTest, ARankingKeepsWithinTheBounds) {
  executors().replicas = 4;
  placement_spec().spread = job::Spread::kFastest;
  placement_spec().clusters = {{"paris", 1, 4}, {"tokyo", 0, 2}};
  ranking_ = {{"tokyo", 4}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("tokyo-0", "tokyo-1", "paris-0", "paris-1"));
}

TEST_F(PlacementTest, AJobThatSaysItsOrderIsNotRanked) {
  executors().replicas = 2;
  room_ = {{"paris", 9}, {"tokyo", 9}};
  ranking_ = {{"tokyo", 2}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("tokyo-0", "tokyo-1"));
  placement_spec().clusters = {{"paris", 0, std::nullopt}, {"tokyo", 0, std::nullopt}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "tokyo-0"));
  placement_spec().clusters.clear();
  placement_spec().spread = job::Spread::kEven;
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "tokyo-0"));
  placement_spec().spread = job::Spread::kPacked;
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "paris-1"));
}

TEST_F(PlacementTest, ThereIsAChoiceWhereMoreThanOneClusterHasMoreRoomThanIsWanted) {
  const auto space = [&](int64_t paris, int64_t tokyo) {
    std::vector<ClusterCandidate> candidates = {{.name = "paris", .room = paris, .devices = paris},
                                                {.name = "tokyo", .room = tokyo, .devices = tokyo}};
    return SearchSpaceOf(job_, candidates).clusters.size();
  };
  executors().replicas = 2;
  EXPECT_EQ(space(2, 2), 2);
  EXPECT_EQ(space(1, 2), 2);
  EXPECT_EQ(space(1, 1), 0) << "all there is";
  EXPECT_EQ(space(4, 0), 0);
  placement_spec().clusters = {{"tokyo", 2, std::nullopt}};
  EXPECT_EQ(space(4, 4), 0) << "its minimum is all that is wanted";
  placement_spec().clusters.clear();
  executors().replicas.reset();
  EXPECT_EQ(space(4, 4), 0) << "without a number it takes what there is";
}

TEST_F(PlacementTest, OneClusterTakesAll) {
  executors().replicas = 3;
  EXPECT_THAT(Place({"local"}), ElementsAre("local-0", "local-1", "local-2"));
}

TEST_F(PlacementTest, WithoutANumberTheFewestRun) {
  executors().min = 2;
  EXPECT_THAT(Place({"local"}), ElementsAre("local-0", "local-1"));
}

TEST_F(PlacementTest, MinimaFirstThenInTurnWithinTheMaxima) {
  executors().replicas = 6;
  placement_spec().clusters = {{"paris", 1, 4}, {"tokyo", 3, 3}};
  EXPECT_THAT(Place({"paris", "tokyo", "oslo"}), ElementsAre("paris-0", "paris-1", "paris-2", "tokyo-0", "tokyo-1", "tokyo-2"));
}

TEST_F(PlacementTest, BoundsHoldForAJobWithoutANumber) {
  room_ = {{"paris", 110}, {"tokyo", 110}};
  devices_ = {{"paris", 4}, {"tokyo", 1}};
  placement_spec().clusters = {{"paris", 0, 1}, {"tokyo", 3, std::nullopt}};
  const Placement placement = Full({"paris", "tokyo"});
  EXPECT_THAT(Names(placement), ElementsAre("tokyo-0", "tokyo-1", "tokyo-2"));
  EXPECT_EQ(placement.shortage, "");
  placement_spec().clusters = {{"paris", 0, 1}};
  EXPECT_EQ(Full({"paris"}).wanted, 1);
  executors().min = 2;
  EXPECT_THAT(Problem({"paris"}), HasSubstr("maxima add up to 1, fewer than the 2"));
}

TEST_F(PlacementTest, OptionsCarryClusterBounds) {
  executors().replicas = 4;
  placement_spec().spread = job::Spread::kFastest;
  placement_spec().clusters = {{"oslo", 1, 2}, {"paris", 0, std::nullopt}};
  const std::vector<ClusterCandidate> candidates = {{.name = "oslo", .room = 9}, {.name = "paris", .room = 9}};
  const SearchSpace space = SearchSpaceOf(job_, candidates);
  ASSERT_EQ(space.clusters.size(), 2);
  EXPECT_EQ(space.clusters[0].min_count, 1);
  EXPECT_EQ(space.clusters[0].max_count, 2);
  EXPECT_EQ(space.clusters[1].min_count, 0);
  EXPECT_EQ(space.clusters[1].max_count, 4);
}

TEST_F(PlacementTest, TheNumberKeepsWithinItsBounds) {
  executors() = {.replicas = 9, .min = 2, .max = 4};
  EXPECT_EQ(RequestedExecutors(executors()), 4);
  executors().replicas = 1;
  EXPECT_EQ(RequestedExecutors(executors()), 2);
  executors().max = 1;
  EXPECT_EQ(RequestedExecutors(executors()), 2) << "it must have these";
  executors().replicas.reset();
  EXPECT_EQ(RequestedExecutors(executors()), 2);
  executors().max.reset();
  EXPECT_EQ(RequestedExecutors(executors()), std::nullopt);
}

TEST_F(PlacementTest, SparesComeAfterThoseThatTrain) {
  executors().replicas = 3;
  executors().spares = 2;
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "paris-1", "tokyo-0", "paris-2 spare", "tokyo-1 spare"));
  executors() = {.replicas = 1, .spares = 1};
  placement_spec().clusters = {{"paris", 0, 1}};
  EXPECT_THAT(Place({"paris"}), ElementsAre("paris-0", "paris-1 spare")) << "the maximum is of those that train";
}

TEST_F(PlacementTest, WhatCannotBeIsSaid) {
  executors().replicas = 4;
  EXPECT_THAT(Problem({}), HasSubstr("no cluster"));
  placement_spec().clusters = {{"mars", 1, std::nullopt}};
  EXPECT_THAT(Problem({"paris"}), HasSubstr("mars must have 1 executor, and there is no such cluster; there are: paris"));
  placement_spec().clusters = {{"paris", 0, 3}};
  EXPECT_THAT(Problem({"paris"}), HasSubstr("maxima add up to 3, fewer than the 4"));
  placement_spec().clusters = {{"paris", 5, std::nullopt}};
  EXPECT_THAT(Problem({"paris"}), HasSubstr("minima add up to 5, more than the 4"));
}

TEST_F(PlacementTest, ExecutorsGoWhereThereIsRoom) {
  executors().replicas = 4;
  room_ = {{"paris", 1}, {"tokyo", 5}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "tokyo-0", "tokyo-1", "tokyo-2"));
}

TEST_F(PlacementTest, FewerThanWantedAreTakenDownToTheMinimum) {
  executors().replicas = 4;
  executors().min = 2;
  room_ = {{"paris", 1}, {"tokyo", 1}};
  const Placement placement = Full({"paris", "tokyo"});
  EXPECT_THAT(Names(placement), ElementsAre("paris-0", "tokyo-0"));
  EXPECT_EQ(placement.wanted, 4);
  EXPECT_EQ(placement.shortage, "2 of 4 executors find room. paris: room for 1; short of cpu. tokyo: room for 1; short of cpu");
  room_ = {{"paris", 1}, {"tokyo", 0}};
  EXPECT_THAT(Problem({"paris", "tokyo"}), HasSubstr("1 of the 2 executors that must train find room. paris: room for 1"));
}

TEST_F(PlacementTest, ThereAreNoMoreThanNamesCanTell) {
  room_ = devices_ = {{"oslo", 12'000}};
  executors().spares = 3;
  const Placement placement = Full({"oslo"});
  EXPECT_EQ(placement.slots.size(), static_cast<size_t>(job::kMaxExecutors));
  for (const manifests::ExecutorSlot& slot : placement.slots) ASSERT_LT(slot.index, job::kMaxExecutors);
}

TEST_F(PlacementTest, WithoutANumberThereAreAsManyAsThereAreDevices) {
  room_ = {{"paris", 110}, {"tokyo", 110}};
  devices_ = {{"paris", 2}, {"tokyo", 1}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "paris-1", "tokyo-0"));
  EXPECT_EQ(Full({"paris", "tokyo"}).shortage, "");
  executors().max = 2;
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "tokyo-0"));
  executors().max.reset();
  job_.spec.strategy.stages = 2;
  job_.spec.strategy.replicas = 2;
  EXPECT_EQ(Place({"paris", "tokyo"}).size(), 4u) << "two stages of two replicas";
}

TEST_F(PlacementTest, PackedFillsOneClusterBeforeTheNextInTheOrderGiven) {
  executors().replicas = 4;
  placement_spec().spread = job::Spread::kPacked;
  room_ = {{"paris", 3}, {"tokyo", 3}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "paris-1", "paris-2", "tokyo-0"));
  placement_spec().clusters = {{"tokyo", 0, 2}, {"paris", 0, std::nullopt}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("tokyo-0", "tokyo-1", "paris-0", "paris-1"));
}

TEST_F(PlacementTest, ASelectorNarrowsTheClusters) {
  executors().replicas = 2;
  labels_ = {{"paris", {{"tier", "gold"}}}, {"tokyo", {{"tier", "tin"}}}};
  placement_spec().cluster_selector.json = R"({"matchExpressions":[{"key":"tier","operator":"In","values":["gold","silver"]}]})";
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "paris-1"));
  EXPECT_THAT(Problem({"tokyo"}), HasSubstr("no cluster may be used; there are: tokyo"));
  placement_spec().cluster_selector.json = R"({"matchExpressions":[{"key":"tier","operator":"Near"}]})";
  EXPECT_THAT(Problem({"paris"}), HasSubstr("spec.placement.clusterSelector: matchExpressions"));
}

TEST_F(PlacementTest, AnExecutorIsWhereTheDataIs) {
  executors().replicas = 2;
  placement_spec().spread = job::Spread::kPacked;
  job_.spec.data.clusters = {"tokyo"};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "tokyo-0"));
  room_ = {{"tokyo", 0}};
  EXPECT_THAT(Problem({"paris", "tokyo"}),
              HasSubstr("spec.data.clusters: no executor can be where the data is, in tokyo. tokyo: room for 0"));
  job_.spec.data.clusters = {"oslo"};
  EXPECT_THAT(Problem({"paris"}), HasSubstr("in oslo"));
}

TEST_F(PlacementTest, ClosedClustersAreLeftOutAndNamed) {
  executors().replicas = 2;
  closed_ = {{"tokyo", "cannot be reached"}};
  EXPECT_THAT(Place({"paris", "tokyo"}), ElementsAre("paris-0", "paris-1"));
  EXPECT_THAT(Problem({"tokyo"}), HasSubstr("no cluster can be used: tokyo cannot be reached"));
  placement_spec().clusters = {{"paris", 0, std::nullopt}, {"tokyo", 1, std::nullopt}};
  EXPECT_THAT(Problem({"paris", "tokyo"}), HasSubstr("a cluster that must have executors cannot be used: tokyo cannot be reached"));
}

TEST_F(PlacementTest, AMinimumThatHasNoRoomIsNamed) {
  executors().replicas = 4;
  placement_spec().clusters = {{"paris", 3, std::nullopt}, {"tokyo", 0, std::nullopt}};
  room_ = {{"paris", 2}};
  EXPECT_THAT(Problem({"paris", "tokyo"}), HasSubstr("paris must have 3 executors and has room for 2. paris: room for 2; short of cpu"));
}

TEST_F(PlacementTest, SparesThatFindNoRoomAreDoneWithout) {
  executors().replicas = 2;
  executors().spares = 2;
  room_ = {{"paris", 3}};
  EXPECT_THAT(Place({"paris"}), ElementsAre("paris-0", "paris-1", "paris-2 spare"));
}

TEST(FewestToBeginTest, IsWhatItsStagesNeedAsFarAsTheJobItselfAllows) {
  struct Case {
    const char* what;
    int64_t min, stages;
    std::optional<int64_t> replicas, max;
    std::vector<job::PlacementCluster> clusters;
    int64_t attempt, fewest;
    int64_t pipelines = 1;
  };
  const Case cases[] = {
      {"stages alone", 1, 3, {}, {}, {}, 0, 3},
      {"min alone", 2, 0, {}, {}, {}, 0, 2},
      {"min beyond stages", 4, 3, {}, {}, {}, 0, 4},
      {"replicas below stages", 1, 3, 2, {}, {}, 0, 2},
      {"max below stages", 1, 3, {}, 2, {}, 0, 2},
      {"maxima of clusters below stages", 1, 3, {}, {}, {{.name = "paris", .max = 1}, {.name = "oslo", .max = 1}}, 0, 2},
      {"one of them without", 1, 3, {}, {}, {{.name = "paris", .max = 1}, {.name = "oslo"}}, 0, 3},
      {"a later attempt", 1, 3, {}, {}, {}, 1, 1},
      {"replicas of stages", 1, 3, {}, {}, {}, 0, 6, 2},
      {"replicas alone", 1, 0, {}, {}, {}, 0, 2, 2},
      {"as many replicas as are fastest", 1, 3, {}, {}, {}, 0, 3, 0},
  };
  for (const Case& each : cases) {
    job::FusionJob job;
    job.spec.executors.min = each.min;
    job.spec.executors.replicas = each.replicas;
    job.spec.executors.max = each.max;
    job.spec.strategy.stages = each.stages;
    job.spec.strategy.replicas = each.pipelines;
    job.spec.placement.clusters = each.clusters;
    EXPECT_EQ(MinExecutorsToStart(job, each.attempt), each.fewest) << each.what;
  }
}

}  // namespace
}  // namespace fusionllm::op::placement
