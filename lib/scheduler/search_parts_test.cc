// The pieces of OP-Fence one by one: order of ops, communities of devices, cuts of a chain, codec ladder, bounds, globs.
#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/bounds.h"
#include "lib/scheduler/chain_search.h"
#include "lib/scheduler/communities.h"
#include "lib/scheduler/device_choice.h"
#include "lib/scheduler/neighbour_orders.h"
#include "lib/scheduler/op_order.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::ProblemOf;
using ::testing::UnorderedElementsAre;

// Sites of two devices each, declared in turns, joined by slow links.
PlanRequest SitesInTurns(int ops) {
  PlanRequest request = testing::Chain({.ops = ops, .op_s = 0.01}, 4);
  for (int round = 0; round < 2; ++round) {
    for (const char* site : {"paris", "tokyo", "quito"}) testing::AddDevice(request, site, 1);
  }
  testing::LinkSites(request, 125e6, 1e-4, 2.5e6, 0.05);
  return request;
}

TEST(OpOrderTest, SourcesStandBeforeTheirReadersAndPlaceholdersFirst) {
  PlanRequest request = testing::Chain({.ops = 3}, 1);
  // A constant that the given order has first, though only the last op reads it.
  request.ops.insert(request.ops.begin() + 2, {.name = "mask", .forward_s = {0}, .backward_s = {0}});
  for (ValueNode& value : request.values) {
    for (int& op : value.consumers) op += op >= 2;
    value.kept_by.clear();
    value.producer += value.producer >= 2;
  }
  request.values.push_back({.name = "mask", .producer = 2, .consumers = {5}, .bytes = 10});
  testing::AddDevice(request, "lab", 1);
  EXPECT_THAT(OrderOps(request), ElementsAre(0, 1, 3, 4, 2, 5));
}

TEST(OpOrderTest, BranchesGivenInTurnsAreKeptTogether) {
  // in -> a0 -> a1 -> a2 -> join and in -> b0 -> b1 -> b2 -> join, written a0 b0 a1 b1 a2 b2.
  PlanRequest request;
  for (const char* name : {"in", "a0", "b0", "a1", "b1", "a2", "b2", "join"})
    request.ops.push_back({.name = name, .forward_s = {1}, .backward_s = {1}});
  const auto edge = [&](int from, std::vector<int> to, int64_t bytes) {
    request.values.push_back({.name = "v", .producer = from, .consumers = to, .bytes = bytes});
  };
  edge(0, {1, 2}, 1);
  for (int op = 1; op < 5; ++op) edge(op, {op + 2}, 1'000);
  edge(5, {7}, 1);
  edge(6, {7}, 1);
  testing::AddDevice(request, "lab", 1);
  const std::vector<int> order = OrderOps(request);
  EXPECT_LT(AliveBytes(request, order), AliveBytes(request, {0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_THAT(order, ElementsAre(0, 1, 3, 5, 2, 4, 6, 7));
}

TEST(DeviceWindowsTest, EveryDeviceIsInOneOfThem) {
  for (const int devices : {1, 64, 65, 70, 96, 100, 130}) {
    PlanRequest request = testing::Chain({}, 1);
    for (int d = 0; d < devices; ++d) testing::AddDevice(request, "lab", 1);
    testing::JoinSites(request, 1e9, 1e-4, 1e6, 0.01);
    std::set<int> seen;
    for (const std::vector<int>& window : DeviceWindows(*ProblemOf(request))) {
      EXPECT_LE(window.size(), kMaxSearchedDevices);
      EXPECT_TRUE(std::is_sorted(window.begin(), window.end()));
      seen.insert(window.begin(), window.end());
    }
    EXPECT_EQ(seen.size(), devices);
  }
}

TEST(CommunitiesTest, FindsTheSitesWhateverTheOrderOfDeclaration) {
  const PlanRequest request = SitesInTurns(12);
  const auto problem = ProblemOf(request);
  EXPECT_THAT(Communities(*problem), Contains(UnorderedElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 5))));
}

TEST(CommunitiesTest, SomeOrderCrossesBetweenSitesOnlyTwice) {
  const PlanRequest request = SitesInTurns(12);
  const auto problem = ProblemOf(request);
  int fewest = 100;
  for (const std::vector<int>& order : CandidateOrders(*problem, 64)) {
    EXPECT_THAT(order, UnorderedElementsAre(0, 1, 2, 3, 4, 5));
    int crossings = 0;
    for (size_t i = 1; i < order.size(); ++i) crossings += request.devices[order[i]].site != request.devices[order[i - 1]].site;
    fewest = std::min(fewest, crossings);
  }
  EXPECT_EQ(fewest, 2);
}

TEST(ChainSearchTest, GivesAFasterDeviceMoreWork) {
  PlanRequest request = testing::Chain({.ops = 8, .op_s = 0.1, .cut_bytes = 1'000}, 64);
  testing::AddDevice(request, "lab", 1);
  testing::AddDevice(request, "lab", 3);
  testing::LinkSites(request, 1e9, 1e-6, 1e9, 1e-6);
  const auto problem = ProblemOf(request);
  ChainSearch chain(*problem, 64);
  const std::vector<int> order = {0, 1};
  const auto results = chain.Partition(order, false, 1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(results[0].assignment.begins, ElementsAre(0, 8)) << "two placeholders and six of eight ops first";
  EXPECT_GE(results[0].estimate_s, LowerBoundSeconds(*problem));
}

TEST(ChainSearchTest, KeepsToTheNumberOfStagesWantedWhenItMaySkip) {
  PlanRequest request = SitesInTurns(12);
  request.stages = 2;
  const auto problem = ProblemOf(request);
  ChainSearch chain(*problem, 64);
  for (const auto& result : chain.Partition(problem->usable(), true, 10)) EXPECT_EQ(result.assignment.devices.size(), 2u);
}

TEST(CodecLevelPolicyTest, ClimbsNoHigherThanHidesTheLink) {
  const CodecLevelPolicy ladder({{"fp32", 1, 1, 0}, {"int8", 4, 4, 0}, {"top-k", 50, 100, 0.1}});
  LinkTraffic link{.lossy_tensors = {{.bytes = 1'000}}, .forward_bytes = 1'000, .backward_bytes = 1'000, .forward_lossless_bytes = 10};
  std::vector<std::string> chosen;
  for (double rate : {2'000.0, 500.0, 100.0, 1.0}) {
    link.forward_bytes_per_s = link.backward_bytes_per_s = rate;
    LinkCodec codec;
    ladder.Choose({&link, 1}, 1.0, {&codec, 1});
    chosen.push_back(codec.codec);
    EXPECT_GE(codec.forward_wire_bytes, 10 + 1'000 / 50) << "lossless bytes are never shrunk";
  }
  EXPECT_THAT(chosen, ElementsAre("fp32", "int8", "top-k", "top-k"));
  EXPECT_EQ(ladder.MaxRatio(), 100);
}

TEST(GlobTest, StarsAndQuestionMarks) {
  EXPECT_TRUE(MatchesGlob("block.0.*", "block.0.attn.c_attn"));
  EXPECT_FALSE(MatchesGlob("block.0.*", "block.01.attn"));
  EXPECT_TRUE(MatchesGlob("*.c_?roj", "h.1.mlp.c_proj"));
  EXPECT_TRUE(MatchesGlob("*", ""));
  EXPECT_FALSE(MatchesGlob("?", ""));
  EXPECT_TRUE(MatchesGlob("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(MatchesGlob("a*b*c", "a-b-c-d"));
  EXPECT_FALSE(MatchesGlob(absl::StrCat(std::string(2'000, '*'), "x"), std::string(5'000, 'a')));
}

TEST(NeighbourOrdersTest, EveryListOneChangeAwayComesOnce) {
  EXPECT_THAT(NeighbourOrders({4, 7}, {4, 7, 9}, true, true),
              UnorderedElementsAre(ElementsAre(7, 4),                                                   // swapped, which is moved as well
                                   ElementsAre(9, 7), ElementsAre(4, 9),                                // replaced
                                   ElementsAre(7), ElementsAre(4),                                      // one less
                                   ElementsAre(9, 4, 7), ElementsAre(4, 9, 7), ElementsAre(4, 7, 9)));  // one more
  EXPECT_THAT(
      NeighbourOrders({1, 2, 3}, {1, 2, 3}, false, true),
      UnorderedElementsAre(ElementsAre(2, 1, 3), ElementsAre(3, 2, 1), ElementsAre(1, 3, 2), ElementsAre(2, 3, 1), ElementsAre(3, 1, 2)));
  EXPECT_THAT(NeighbourOrders({5}, {5, 6}, true, false), ElementsAre(ElementsAre(6))) << "a list of one does not become empty";
}

}  // namespace
}  // namespace fusionllm::scheduler
