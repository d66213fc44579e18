// Chains of replicas on random networks: the model against chunks sent one by one, the order found against all orders, and against the
// ring all-reduce.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "lib/scheduler/infinity.h"
#include "lib/scheduler/replicas/all_reduce.h"
#include "lib/scheduler/replicas/replica_planner.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::replicas {
namespace {

using testing::ProblemOf;

class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(seed) {}
  double Real(double low, double high) { return low + (high - low) * (static_cast<double>(generator_() >> 11) * 0x1p-53); }
  double Log(double low, double high) { return std::exp(Real(std::log(low), std::log(high))); }
  int Whole(int low, int high) { return low + static_cast<int>(generator_() % static_cast<uint64_t>(high - low + 1)); }

 private:
  std::mt19937_64 generator_;
};

struct Network {
  int sites = 1;
  int devices = 2;
  bool equal_ports = false;  // else each draws its own rate
  bool symmetric = false;    // lines between sites; else each direction draws its own rate and latency
};

// One device in each site, and the others where they fall. Inside a site they share nothing but their ports; a line between two sites
// carries all that crosses, as lib/planning makes networks.
PlanRequest RandomSites(uint64_t seed, const Network& network) {
  Draw draw(seed);
  PlanRequest request = testing::Chain({.ops = 2}, 4);
  for (int i = 0; i < network.sites; ++i) request.sites.push_back("site" + std::to_string(i));
  for (int d = 0; d < network.devices; ++d) {
    testing::AddDevice(request, request.sites[d < network.sites ? d : draw.Whole(0, network.sites - 1)], 1);
    Device& device = request.devices.back();
    const double drawn = draw.Log(1e8, 1e9);
    device.out_port = static_cast<int>(request.resources.size());
    device.in_port = device.out_port + 1;
    for (const char* way : {":out", ":in"}) {
      request.resources.push_back({.name = device.name + way, .bytes_per_s = network.equal_ports ? 1e9 : drawn});
    }
  }
  for (int from = 0; from < network.sites; ++from) {
    for (int to = 0; to < network.sites; ++to) {
      SiteLink link{.src = {.site = from}, .dst = {.site = to}, .latency_s = 1e-4, .bytes_per_s = 1e9, .through_ports = from == to};
      if (from != to) {
        link.latency_s = draw.Log(0.001, 0.1);
        link.bytes_per_s = draw.Log(2e6, 2e8);
        if (network.symmetric && to < from) {
          const SiteLink& back = request.site_links[to * network.sites + from];
          link.latency_s = back.latency_s;
          link.bytes_per_s = back.bytes_per_s;
        }
        link.resources = {static_cast<int>(request.resources.size())};
        request.resources.push_back({.name = request.sites[from] + "->" + request.sites[to], .bytes_per_s = link.bytes_per_s});
      }
      request.site_links.push_back(std::move(link));
    }
  }
  return request;
}

std::vector<int> AllDevices(const PlanRequest& request) {
  std::vector<int> devices(request.devices.size());
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

double Seconds(const Problem& problem, const std::vector<int>& devices, int64_t bytes) {
  const Chain chain{.devices = devices, .gradient_bytes = bytes};
  return AllReduceSeconds(problem, {&chain, 1});
}

// Every chunk waits for the one before it at every hop.
double ChunkByChunk(const Problem& problem, const Chain& chain) {
  const int64_t chunk_bytes = ChunkBytes(chain.gradient_bytes);
  std::vector<int> way = chain.devices;
  way.insert(way.end(), chain.devices.rbegin() + 1, chain.devices.rend());
  std::vector<double> free_s(way.size() - 1, 0);  // of each hop
  double arrived_s = 0;
  for (int64_t sent = 0; sent < chain.gradient_bytes; sent += chunk_bytes) {
    arrived_s = 0;
    for (size_t hop = 0; hop < free_s.size(); ++hop) {
      const DirectedLink link = problem.link(way[hop], way[hop + 1]);
      free_s[hop] = std::max(free_s[hop], arrived_s) + static_cast<double>(chunk_bytes) / link.bytes_per_s;
      arrived_s = free_s[hop] + link.latency_s;
    }
  }
  return arrived_s;
}

TEST(FastestChainTest, ModelMatchesChunkByChunkWithoutSharedLinks) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Draw draw(seed);
    PlanRequest request = testing::Chain({.ops = 2}, 4);
    const int devices = draw.Whole(2, 7);
    for (int d = 0; d < devices; ++d) testing::AddDevice(request, "paris", 1);
    testing::LinkSites(request, 1, 0, 1, 0);
    for (Link& link : request.links) {
      link.bytes_per_s = draw.Log(1e6, 1e9);
      link.latency_s = draw.Log(1e-4, 0.1);
    }
    const auto problem = ProblemOf(request);
    const Chain chain{.devices = AllDevices(request), .gradient_bytes = int64_t{1} << draw.Whole(10, 30)};  // whole chunks
    const double expected = ChunkByChunk(*problem, chain);
    EXPECT_NEAR(AllReduceSeconds(*problem, {&chain, 1}), expected, 1e-9 * expected) << "seed " << seed;
  }
}

TEST(FastestChainTest, NoOrderIsFaster) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const PlanRequest request = RandomSites(seed, {.sites = 1 + static_cast<int>(seed % 4), .devices = 2 + static_cast<int>(seed % 5)});
    const auto problem = ProblemOf(request);
    const int64_t bytes = int64_t{1} << (10 + seed % 21);
    std::vector<int> order = AllDevices(request);
    const Chain found = FastestChain(*problem, order, bytes);
    EXPECT_EQ(found, FastestChain(*problem, order, bytes));
    const double found_s = AllReduceSeconds(*problem, {&found, 1});
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), found.devices.begin(), found.devices.end()));
    EXPECT_TRUE(found.devices == order || found_s < Seconds(*problem, order, bytes)) << "seed " << seed << ": the order given wins ties";
    do {
      const double seconds = Seconds(*problem, order, bytes);
      ASSERT_LE(found_s, seconds * (1 + kSameSeconds)) << "seed " << seed;
      const std::vector<int> backwards(order.rbegin(), order.rend());
      ASSERT_NEAR(Seconds(*problem, backwards, bytes), seconds, 1e-12 * seconds) << "seed " << seed;
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// 7 and 8 devices are too many to try all orders.
TEST(FastestChainTest, BeyondAllOrdersItIsNearTheBest) {
  std::vector<double> ratios;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    const PlanRequest request = RandomSites(seed, {.sites = 1 + static_cast<int>(seed % 4), .devices = seed % 8 == 0 ? 8 : 7});
    const auto problem = ProblemOf(request);
    const int64_t bytes = int64_t{1} << (16 + seed % 15);
    std::vector<int> order = AllDevices(request);
    const Chain found = FastestChain(*problem, order, bytes);
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), found.devices.begin(), found.devices.end()));
    double best_s = kInfinity;
    do {
      if (order.front() < order.back()) best_s = std::min(best_s, Seconds(*problem, order, bytes));
    } while (std::next_permutation(order.begin(), order.end()));
    ratios.push_back(AllReduceSeconds(*problem, {&found, 1}) / best_s);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("7 and 8 devices: median %.4f, largest %.4f of the best order's time\n", ratios[ratios.size() / 2], ratios.back());
  EXPECT_LE(ratios.back(), 1.001);
  EXPECT_LE(ratios[ratios.size() / 2], 1 + 1e-9);
}

// Whom a quick look leaves with a third more seconds: the two devices of one site are to be passed through one at a time.
TEST(FastestChainTest, APlansChainIsLookedForWithAllEffort) {
  PlanRequest request = RandomSites(103, {.sites = 4, .devices = 7});
  request.micro_batches = 7;
  request.stages = 1;
  for (auto& op : request.ops) op.gradient_bytes = 0;
  request.ops.back().gradient_bytes = int64_t{1} << 29;
  const auto problem = ProblemOf(request);
  const auto seconds = [&](Effort effort) {
    const Chain found = FastestChain(*problem, AllDevices(request), request.ops.back().gradient_bytes, effort);
    return AllReduceSeconds(*problem, {&found, 1});
  };
  ASSERT_GT(seconds(Effort::kQuick), 1.3 * seconds(Effort::kFull)) << "this test would say nothing";
  const auto outcome = PlanReplicas("op-fence", request, 7);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(std::holds_alternative<ReplicaPlan>(*outcome)) << std::get<PlanError>(*outcome).message;
  EXPECT_NEAR(std::get<ReplicaPlan>(*outcome).sync_s, seconds(Effort::kFull), 1e-9);
}

// The ring all-reduce (Patarasuk and Yuan, 2009) on the same terms: 2 (D - 1) rounds of 1/D of the bytes over each link of the ring.
double RingSeconds(const Problem& problem, const std::vector<int>& ring, int64_t bytes) {
  const double rounds = 2.0 * static_cast<double>(ring.size() - 1);
  const double of_a_link = rounds / static_cast<double>(ring.size()) * static_cast<double>(bytes);
  std::map<int, double> loads;
  const auto for_each_link = [&](const auto& visit) {
    for (size_t i = 0; i < ring.size(); ++i) visit(ring[i], ring[(i + 1) % ring.size()]);
  };
  for_each_link(
      [&](int src, int dst) { problem.links().ForEachResource(src, dst, problem.link(src, dst), [&](int r) { loads[r] += of_a_link; }); });
  double slowest_s = 0;
  for_each_link([&](int src, int dst) {
    const DirectedLink link = problem.link(src, dst);
    double busy_s = of_a_link / link.own_bytes_per_s;
    problem.links().ForEachResource(src, dst, link,
                                    [&](int r) { busy_s = std::max(busy_s, loads.at(r) / problem.request().resources[r].bytes_per_s); });
    slowest_s = std::max(slowest_s, rounds * link.latency_s + busy_s);
  });
  return slowest_s;
}

double FastestRingSeconds(const Problem& problem, std::vector<int> ring, int64_t bytes) {
  double best_s = kInfinity;
  do best_s = std::min(best_s, RingSeconds(problem, ring, bytes));
  while (std::next_permutation(ring.begin() + 1, ring.end()));
  return best_s;
}

struct Comparison {
  double median = 0, least = kInfinity, most = 0;  // the best chain's time over the best ring's
  double slower = 0;                               // share of networks where it is above one
};

Comparison Compare(const Network& network, int64_t bytes) {
  constexpr int kNetworks = 60;
  std::vector<double> ratios;
  Comparison out;
  for (uint64_t seed = 1; seed <= kNetworks; ++seed) {
    const PlanRequest request = RandomSites(seed, network);
    const auto problem = ProblemOf(request);
    const Chain chain = FastestChain(*problem, AllDevices(request), bytes);
    const double ratio = AllReduceSeconds(*problem, {&chain, 1}) / FastestRingSeconds(*problem, AllDevices(request), bytes);
    ratios.push_back(ratio);
    out.least = std::min(out.least, ratio);
    out.most = std::max(out.most, ratio);
    out.slower += (ratio > 1 + 1e-9) / static_cast<double>(kNetworks);
  }
  std::sort(ratios.begin(), ratios.end());
  out.median = ratios[ratios.size() / 2];
  std::printf("%d members, %7.3f MB: median %5.2f, %5.2f to %5.2f; slower on %3.0f %%\n", network.devices,
              static_cast<double>(bytes) * 1e-6, out.median, out.least, out.most, 100 * out.slower);
  return out;
}

constexpr int64_t kOneChunk = 64'000, kFewChunks = 1'000'000, kSixteenChunks = 32'000'000, kManyChunks = 1'000'000'000;

// Devices with equal ports in one site: one inside the chain sends and receives all bytes twice, in the ring 2 (D - 1) / D of them.
TEST(FastestChainTest, BehindEqualPortsOfOneSiteTheRingIsFaster) {
  std::printf("one site, equal ports\n");
  for (const int devices : {2, 3, 4, 6}) {
    const Network network{.sites = 1, .devices = devices, .equal_ports = true};
    const double passes = devices == 2 ? 1 : 2, ring_passes = 2.0 * (devices - 1) / devices;
    for (const int64_t bytes : {kOneChunk, kFewChunks, kSixteenChunks}) EXPECT_GT(Compare(network, bytes).least, 1);
    const Comparison many = Compare(network, kManyChunks);
    EXPECT_GT(many.least, passes / ring_passes);
    EXPECT_LT(many.most, 1.03 * passes / ring_passes);
  }
}

// Ports of one to ten times a rate: the fastest devices go inside, where the ring has the slowest port decide.
TEST(FastestChainTest, BehindUnequalPortsMuchDataMostlyGoesFasterAlongTheChain) {
  std::printf("one site, ports drawn\n");
  for (const int devices : {2, 3, 4, 6}) {
    const Network network{.sites = 1, .devices = devices};
    for (const int64_t bytes : {kOneChunk, kFewChunks, kSixteenChunks}) Compare(network, bytes);
    const Comparison many = Compare(network, kManyChunks);
    EXPECT_LT(many.slower, devices == 2 ? 1.01 : 0.2);
  }
}

TEST(FastestChainTest, ChainBeatsRingOverSymmetricSiteLinks) {
  for (const int sites : {2, 3, 4}) {
    std::printf("%d sites, symmetric lines\n", sites);
    for (const int devices : {2, 3, 4, 6}) {
      const Network network{.sites = sites, .devices = devices, .equal_ports = true, .symmetric = true};
      for (const int64_t bytes : {kOneChunk, kFewChunks, kSixteenChunks, kManyChunks}) {
        const Comparison comparison = Compare(network, bytes);
        if (devices == 2) {
          EXPECT_LT(comparison.most, bytes == kOneChunk ? 2 : 1.07) << "a chunk more than the ring";
        } else if (bytes == kOneChunk) {
          EXPECT_LT(comparison.most, 2);
          EXPECT_LT(comparison.slower, 0.25);
        } else {
          EXPECT_LT(comparison.most, 1);
        }
      }
    }
  }
}

// A ring may go round three sites the fast way where the way back is slow; a chain needs both ways.
TEST(FastestChainTest, RingMayBeatChainOnAsymmetricLinks) {
  for (const int sites : {2, 3, 4}) {
    std::printf("%d sites, rates each way drawn from a range of a hundred\n", sites);
    for (const int devices : {3, 4, 6}) {
      const Network network{.sites = sites, .devices = devices};
      const Comparison comparison = Compare(network, kManyChunks);
      EXPECT_LT(comparison.median, 0.85);
      if (sites == 2) {
        EXPECT_LT(comparison.most, 0.8) << "who leaves a site must come back";
      } else {
        EXPECT_GT(comparison.most, 2);
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::scheduler::replicas
