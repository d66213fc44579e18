#include "lib/scheduler/replicas/all_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "lib/scheduler/replicas/replica_evaluator.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::replicas {
namespace {

using ::testing::ElementsAre;

constexpr double kInside = 1e8, kInsideLatency = 0.001, kAcross = 1e6, kAcrossLatency = 0.05;
constexpr int64_t kBytes = 4'000'000;
constexpr double kChunk = kBytes / 16.0;

// Devices 0, 1 in paris, 2, 3 in tokyo; one line of 1 MB/s each way between them.
class AllReduceTest : public ::testing::Test {
 protected:
  AllReduceTest() : request_(testing::Chain({.ops = 4, .parameter_bytes = kBytes}, 4)) {
    for (const char* site : {"paris", "paris", "tokyo", "tokyo"}) testing::AddDevice(request_, site, 1);
    testing::LinkSites(request_, kInside, kInsideLatency, kAcross, kAcrossLatency);
    Prepare();
  }
  void Prepare() { problem_ = std::get<std::unique_ptr<Problem>>(Problem::Create(request_).value()); }
  double Seconds(const std::vector<Chain>& chains) const { return AllReduceSeconds(*problem_, chains); }
  std::vector<int> Fastest(const std::vector<int>& devices) const { return FastestChain(*problem_, devices, kBytes).devices; }
  Link& LinkOf(int src, int dst) {
    return *std::find_if(request_.links.begin(), request_.links.end(), [&](const Link& l) { return l.src == src && l.dst == dst; });
  }

  PlanRequest request_;
  std::unique_ptr<Problem> problem_;
};

TEST_F(AllReduceTest, ChunksAreASixteenthOfTheBytesWithinLimits) {
  EXPECT_EQ(ChunkBytes(1), 1);
  EXPECT_EQ(ChunkBytes(kMinChunkBytes), kMinChunkBytes);
  EXPECT_EQ(ChunkBytes(1'000'000), kMinChunkBytes);
  EXPECT_EQ(ChunkBytes(1'600'000), 100'000);
  EXPECT_EQ(ChunkBytes(int64_t{1} << 40), kMaxChunkBytes);
}

TEST_F(AllReduceTest, TwoReplicasSendAllBytesOnceEachWay) {
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1}, kBytes}}), 2 * kInsideLatency + (kBytes + kChunk) / kInside);
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, kBytes}}), 2 * kAcrossLatency + (kBytes + kChunk) / kAcross);
  EXPECT_EQ(AllReduceBytes(std::vector<Chain>{{{0, 2}, kBytes}}), 2 * kBytes);
  // A single chunk makes its way there, then back.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, 1'000}}), 2 * (kAcrossLatency + 1'000 / kAcross));
}

TEST_F(AllReduceTest, FourCrossTheLineOnceEachWayIfTheChainIsWellOrdered) {
  // Four hops inside sites and two over the line, of which one has all the bytes and the other is a chunk behind.
  const double good_s = 4 * kInsideLatency + 2 * kAcrossLatency + (kBytes + kChunk) / kAcross + 4 * kChunk / kInside;
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1, 2, 3}, kBytes}}), good_s);
  // In zigzag all six hops cross, three in each direction at once.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2, 1, 3}, kBytes}}), 6 * kAcrossLatency + 3 * (kBytes + 5 * kChunk) / kAcross);
  EXPECT_THAT(Fastest({0, 2, 1, 3}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Fastest({1, 0, 3, 2}), ElementsAre(1, 0, 3, 2)) << "as fast, and the order given";
  EXPECT_EQ(AllReduceBytes(std::vector<Chain>{{{0, 1, 2, 3}, kBytes}}), 6 * kBytes);
}

TEST_F(AllReduceTest, AGridsChainsGoInTheOrderOfPipelinesWhereThatIsAsFast) {
  ReplicaEvaluator evaluator(*problem_);
  const auto order = [&](const std::vector<int>& row) { return evaluator.Chains({.begins = {0}, .devices = {row}})[0].devices; };
  EXPECT_THAT(order({3, 2, 0, 1}), ElementsAre(3, 2, 0, 1));
  EXPECT_THAT(order({1, 0, 3, 2}), ElementsAre(1, 0, 3, 2)) << "the same devices, remembered";
  EXPECT_THAT(order({0, 2, 1, 3}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order({2, 0}), ElementsAre(2, 0));
}

TEST_F(AllReduceTest, StagesShareTheLineBetweenSites) {
  // Both stages have a replica at each site: the line carries the gradients of both at once, chunk by chunk.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, kBytes}, {{1, 3}, kBytes / 2}}), 2 * kAcrossLatency + 1.5 * (kBytes + kChunk) / kAcross);
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, kBytes}, {{3, 1}, kBytes / 2}}), 2 * kAcrossLatency + 1.5 * (kBytes + kChunk) / kAcross)
      << "whichever end a chain begins at";
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1}, kBytes}, {{2, 3}, kBytes / 2}}), 2 * kInsideLatency + (kBytes + kChunk) / kInside);
}

// One chunk waits for one of the other stage's at a time, not for all of them.
TEST_F(AllReduceTest, FewBytesBesideManyAreNotHeldUpAtEveryHop) {
  constexpr int64_t kFew = 1'000;
  const double seconds = Seconds({{{0, 2}, kBytes}, {{1, 3}, kFew}});
  EXPECT_DOUBLE_EQ(seconds, 2 * kAcrossLatency + (kBytes + kFew + kChunk + kFew) / kAcross);
}

TEST_F(AllReduceTest, TheUseOfLinksAddsUpToTheSecondsAndBytes) {
  const std::vector<Chain> chains = {{{0, 2}, kBytes}, {{1, 3}, kBytes / 2}};
  const AllReduceUsage use = UsageOf(*problem_, chains);
  ASSERT_EQ(use.links.size(), 4u);
  double slowest_s = 0;
  int64_t bytes = 0;
  for (const ChainLink& link : use.links) {
    slowest_s = std::max(slowest_s, link.end_s + link.latency_s);
    bytes += link.bytes;
    EXPECT_EQ(link.chunks, 16);
    EXPECT_GE(link.end_s - link.begin_s, link.busy_s * (1 - 1e-12));
  }
  EXPECT_EQ(slowest_s, Seconds(chains)) << "bit for bit";
  EXPECT_EQ(bytes, AllReduceBytes(chains));
  const std::vector<Device>& devices = problem_->request().devices;
  EXPECT_EQ(use.links[0].src, devices[0].name);
  EXPECT_EQ(use.links[1].src, devices[2].name) << "the way back";
  EXPECT_EQ(use.links[1].dst, devices[0].name);
  EXPECT_EQ(use.links[2].stage, 1);
  EXPECT_EQ(use.links[0].begin_s, 0);
  EXPECT_DOUBLE_EQ(use.links[1].begin_s, kAcrossLatency + 1.5 * kChunk / kAcross) << "when the first chunk has come";
  EXPECT_DOUBLE_EQ(use.links[0].end_s, 1.5 * kBytes / kAcross);
  // Each way, the line between the sites carries the gradients of both stages.
  int full = 0;
  for (const ChainResource& resource : use.resources) full += resource.bytes == kBytes + kBytes / 2;
  EXPECT_EQ(full, 2);
}

TEST_F(AllReduceTest, APairsOwnRateLimitsItEvenOnAFastLineWhicheverWayItGoes) {
  const double slow = kAcross / 10;
  for (const auto& [src, dst] : {std::pair(0, 2), std::pair(2, 0)}) {
    LinkOf(src, dst).bytes_per_s = slow;
    Prepare();
    // The slower way has all the bytes, the other one a chunk.
    const double expected = 2 * kAcrossLatency + kBytes / slow + kChunk / kAcross;
    EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, kBytes}}), expected);
    EXPECT_DOUBLE_EQ(Seconds({{{2, 0}, kBytes}}), expected) << "a chain backwards has the same hops";
    LinkOf(src, dst).bytes_per_s = kAcross;
  }
}

TEST_F(AllReduceTest, TheSlowestLinkCanBeLeftOut) {
  LinkOf(1, 2).bytes_per_s = LinkOf(2, 1).bytes_per_s = LinkOf(0, 3).bytes_per_s = LinkOf(3, 0).bytes_per_s = kAcross / 10;
  Prepare();
  EXPECT_THAT(Fastest({0, 1, 2, 3}), ElementsAre(0, 1, 3, 2));
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1, 3, 2}, kBytes}}),
                   4 * kInsideLatency + 2 * kAcrossLatency + (kBytes + kChunk) / kAcross + 4 * kChunk / kInside);
}

TEST_F(AllReduceTest, NothingToAddUpTakesNoTime) {
  EXPECT_EQ(Seconds({{{0}, kBytes}, {{1, 2}, 0}}), 0);
  EXPECT_EQ(AllReduceBytes(std::vector<Chain>{{{0}, kBytes}, {{1, 2}, 0}}), 0);
  EXPECT_TRUE(UsageOf(*problem_, std::vector<Chain>{{{0}, kBytes}, {{1, 2}, 0}}).links.empty());
}

TEST_F(AllReduceTest, NeighboursNeedALinkBothWaysAndTheEndsNone) {
  std::erase_if(request_.links, [](const Link& link) { return link.src == 3 && link.dst == 0; });
  Prepare();
  EXPECT_TRUE(std::isinf(Seconds({{{0, 3}, kBytes}})));
  EXPECT_TRUE(std::isinf(Seconds({{{3, 0}, kBytes}})));
  EXPECT_TRUE(std::isinf(Seconds({{{0, 1}, kBytes}, {{0, 3}, kBytes}})));
  EXPECT_FALSE(std::isinf(Seconds({{{0, 1, 2, 3}, kBytes}})));
  EXPECT_THAT(Fastest({1, 0, 3, 2}), ElementsAre(1, 0, 2, 3)) << "there is a way round";
  std::erase_if(request_.links, [](const Link& link) { return link.dst == 3; });
  Prepare();
  EXPECT_TRUE(std::isinf(Seconds({FastestChain(*problem_, std::vector<int>{0, 1, 2, 3}, kBytes)})));
}

TEST_F(AllReduceTest, ManyDevicesGoToTheNearestNext) {
  for (int i = 0; i < 4; ++i) testing::AddDevice(request_, i % 2 == 0 ? "paris" : "tokyo", 1);
  request_.links.clear();
  request_.resources.clear();
  testing::LinkSites(request_, kInside, kInsideLatency, kAcross, kAcrossLatency);
  Prepare();
  const Chain chain = FastestChain(*problem_, std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, kBytes);
  EXPECT_NEAR(Seconds({chain}), 12 * kInsideLatency + 2 * kAcrossLatency + (kBytes + kChunk) / kAcross + 12 * kChunk / kInside, 1e-9)
      << "the line is crossed once each way";
}

// Too many to try orders and to improve: what goes there fast and comes back slowly, or not at all, is not near.
TEST_F(AllReduceTest, TheNearestIsNearBothWays) {
  constexpr int kDevices = kMaxImprovedDevices + 2;
  for (const double back : {0.0, kAcross}) {
    PlanRequest request = testing::Chain({.ops = 4, .parameter_bytes = kBytes}, 4);
    for (int i = 0; i < kDevices; ++i) testing::AddDevice(request, "paris", 1);
    for (int i = 0; i < kDevices; ++i) {
      for (const int next : {i - 1, i + 1}) {
        if (next >= 0 && next < kDevices) request.links.push_back({.src = i, .dst = next, .bytes_per_s = kInside});
      }
      if (i + 2 >= kDevices) continue;
      request.links.push_back({.src = i, .dst = i + 2, .bytes_per_s = 10 * kInside});
      if (back > 0) request.links.push_back({.src = i + 2, .dst = i, .bytes_per_s = back});
    }
    request_ = request;
    Prepare();
    std::vector<int> line, given;
    for (int i = 0; i < kDevices; ++i) {
      line.push_back(i);
      given.push_back(i * 7 % kDevices);
    }
    EXPECT_EQ(Fastest(given), line);
  }
}

TEST_F(AllReduceTest, APortInsideTheChainCarriesAllTwice) {
  PlanRequest request = testing::Chain({.ops = 4, .parameter_bytes = kBytes}, 4);
  for (int i = 0; i < 3; ++i) testing::AddDevice(request, "paris", 1);
  testing::JoinSites(request, kInside, kInsideLatency, kAcross, kAcrossLatency);
  request.site_links[0].through_ports = true;
  for (Device& device : request.devices) {
    device.out_port = static_cast<int>(request.resources.size());
    device.in_port = device.out_port + 1;
    for (const char* way : {":out", ":in"}) request.resources.push_back({.name = device.name + way, .bytes_per_s = kInside});
  }
  request_ = request;
  Prepare();
  // The middle one's port sends on and back, so every hop shares one of its directions.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1, 2}, kBytes}}), 4 * kInsideLatency + 2 * (kBytes + 3 * kChunk) / kInside);
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1}, kBytes}}), 2 * kInsideLatency + (kBytes + kChunk) / kInside);
}

TEST_F(AllReduceTest, BytesInFlightAreBoundedByChunksAhead) {
  constexpr int64_t kMany = int64_t{1} << 40, kMiB = int64_t{1} << 20;
  const Chain two = {{0, 1}, kMany}, four = {{3, 0, 2, 1}, kMany};
  EXPECT_EQ(BytesInFlight(two, 0), 8 * kMiB + 3 * kMaxChunkBytes);
  EXPECT_EQ(BytesInFlight(two, 1), BytesInFlight(two, 0));
  EXPECT_EQ(BytesInFlight(four, 0), 24 * kMiB + 3 * kMaxChunkBytes);
  EXPECT_EQ(BytesInFlight(four, 1), 24 * kMiB + 5 * kMaxChunkBytes);
  EXPECT_EQ(BytesInFlight(four, 2), 16 * kMiB + 5 * kMaxChunkBytes);
  EXPECT_EQ(BytesInFlight(four, 3), 8 * kMiB + 3 * kMaxChunkBytes);
  // No more than there are, and what lies there twice.
  EXPECT_EQ(BytesInFlight({{0, 1}, 1'000'000}, 0), 1'000'000 + 2 * kMinChunkBytes);
  EXPECT_EQ(BytesInFlight({{0}, kMany}, 0), 0);
  EXPECT_EQ(BytesInFlight({{0, 1}, 0}, 1), 0);
}

// Replicas add up use by use, also where one stage has several (adr/0020): nothing is taken off for what is tied.
TEST_F(AllReduceTest, GradientsOfTiedParametersCountForEachUseInAStage) {
  // op0 and the loss use one parameter of half their bytes.
  request_.tied.push_back({.name = "wte", .ops = {2, 5}, .bytes = kBytes / 2});
  Prepare();
  const int n = problem_->positions();
  EXPECT_EQ(GradientBytes(*problem_, 0, n), 4 * kBytes);
  EXPECT_EQ(GradientBytes(*problem_, 0, n - 1), 3 * kBytes);
  EXPECT_EQ(GradientBytes(*problem_, n - 1, n), kBytes);
}

}  // namespace
}  // namespace fusionllm::scheduler::replicas
