#include "lib/scheduler/replicas/all_reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <variant>

#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::replicas {
namespace {

constexpr double kInside = 1e8, kInsideLatency = 0.001, kAcross = 1e6, kAcrossLatency = 0.05;
constexpr int64_t kBytes = 4'000'000;

// Devices 0, 1 in paris, 2, 3 in tokyo; one line of 1 MB/s each way between them.
class AllReduceTest : public ::testing::Test {
 protected:
  AllReduceTest() : request_(testing::Chain({.ops = 4, .parameter_bytes = kBytes}, 4)) {
    for (const char* site : {"paris", "paris", "tokyo", "tokyo"}) testing::AddDevice(request_, site, 1);
    testing::LinkSites(request_, kInside, kInsideLatency, kAcross, kAcrossLatency);
    Prepare();
  }
  void Prepare() { problem_ = std::get<std::unique_ptr<Problem>>(Problem::Create(request_).value()); }
  double Seconds(const std::vector<Ring>& rings) const { return AllReduceSeconds(*problem_, rings); }

  PlanRequest request_;
  std::unique_ptr<Problem> problem_;
};

TEST_F(AllReduceTest, TwoInsideASiteSendTheirHalvesTwice) {
  // 2 (2 - 1) rounds of half the bytes: all of them once each way, two latencies.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1}, kBytes}}), 2 * kInsideLatency + kBytes / kInside);
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, kBytes}}), 2 * kAcrossLatency + kBytes / kAcross);
  EXPECT_EQ(AllReduceBytes(std::vector<Ring>{{{0, 2}, kBytes}}), 2 * kBytes);
}

TEST_F(AllReduceTest, FourCrossTheLineOnceEachWayIfTheRingIsWellOrdered) {
  // 2 x 3 rounds of a quarter: 1.5 times the bytes over each link of the ring.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1, 2, 3}, kBytes}}), 6 * kAcrossLatency + 1.5 * kBytes / kAcross);
  // In zigzag each direction of the line carries two links of the ring.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2, 1, 3}, kBytes}}), 6 * kAcrossLatency + 2 * 1.5 * kBytes / kAcross);
  const Ring ring = FastestRing(*problem_, std::vector<int>{0, 2, 1, 3}, kBytes);
  EXPECT_DOUBLE_EQ(Seconds({ring}), 6 * kAcrossLatency + 1.5 * kBytes / kAcross);
}

TEST_F(AllReduceTest, StagesShareTheLineBetweenSites) {
  // Both stages have a replica at each site: the line carries the gradients of both at once.
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, kBytes}, {{1, 3}, kBytes / 2}}), 2 * kAcrossLatency + 1.5 * kBytes / kAcross);
  EXPECT_DOUBLE_EQ(Seconds({{{0, 1}, kBytes}, {{2, 3}, kBytes / 2}}), 2 * kInsideLatency + kBytes / kInside);
}

TEST_F(AllReduceTest, TheUseOfLinksAddsUpToTheSecondsAndBytes) {
  const std::vector<Ring> rings = {{{0, 2}, kBytes}, {{1, 3}, kBytes / 2}};
  const AllReduceUse use = UseOf(*problem_, rings);
  ASSERT_EQ(use.links.size(), 4u);
  double slowest_s = 0;
  int64_t bytes = 0;
  for (const RingLink& link : use.links) {
    slowest_s = std::max(slowest_s, link.busy_s + link.latency_s);
    bytes += link.bytes;
    EXPECT_EQ(link.rounds, 2);
  }
  EXPECT_DOUBLE_EQ(slowest_s, Seconds(rings));
  EXPECT_EQ(bytes, AllReduceBytes(rings));
  EXPECT_EQ(use.links[0].src, problem_->request().devices[0].name);
  EXPECT_EQ(use.links[2].stage, 1);
  // Each way, the line between the sites carries the gradients of both stages.
  int full = 0;
  for (const RingResource& resource : use.resources) full += resource.bytes == kBytes + kBytes / 2;
  EXPECT_EQ(full, 2);
}

TEST_F(AllReduceTest, APairsOwnRateLimitsItEvenOnAFastLine) {
  for (Link& link : request_.links) {
    if (link.src == 2 && link.dst == 0) link.bytes_per_s = kAcross / 10;
  }
  Prepare();
  EXPECT_DOUBLE_EQ(Seconds({{{0, 2}, kBytes}}), 2 * kAcrossLatency + kBytes / (kAcross / 10));
}

TEST_F(AllReduceTest, NothingToAddUpTakesNoTime) {
  EXPECT_EQ(Seconds({{{0}, kBytes}, {{1, 2}, 0}}), 0);
  EXPECT_EQ(AllReduceBytes(std::vector<Ring>{{{0}, kBytes}, {{1, 2}, 0}}), 0);
}

TEST_F(AllReduceTest, AMissingLinkOfTheRingIsNoRing) {
  std::erase_if(request_.links, [](const Link& link) { return link.src == 3 && link.dst == 0; });
  Prepare();
  EXPECT_TRUE(std::isinf(Seconds({{{0, 3}, kBytes}})));
  EXPECT_FALSE(std::isinf(Seconds({FastestRing(*problem_, std::vector<int>{0, 1, 2, 3}, kBytes)}))) << "there is a way round";
}

TEST_F(AllReduceTest, ManyDevicesGoToTheNearestNext) {
  for (int i = 0; i < 4; ++i) testing::AddDevice(request_, i % 2 == 0 ? "paris" : "tokyo", 1);
  request_.links.clear();
  request_.resources.clear();
  testing::LinkSites(request_, kInside, kInsideLatency, kAcross, kAcrossLatency);
  Prepare();
  const Ring ring = FastestRing(*problem_, std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, kBytes);
  EXPECT_DOUBLE_EQ(Seconds({ring}), 14 * kAcrossLatency + 14.0 / 8 * kBytes / kAcross) << "the line is crossed once each way";
}

TEST_F(AllReduceTest, GradientsOfTiedParametersCountOnceInAStage) {
  // op0 and the loss use one parameter of half their bytes.
  request_.tied.push_back({.name = "wte", .ops = {2, 5}, .bytes = kBytes / 2});
  Prepare();
  const int n = problem_->positions();
  EXPECT_EQ(GradientBytes(*problem_, 0, n), 4 * kBytes - kBytes / 2);
  EXPECT_EQ(GradientBytes(*problem_, 0, n - 1), 3 * kBytes) << "one use alone is not shared with anybody";
}

}  // namespace
}  // namespace fusionllm::scheduler::replicas
