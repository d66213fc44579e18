#include "lib/scheduler/directed_links.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// paris: 0 1 2, tokyo: 3 4, and 5 at a site that no link speaks of. Every kind of rule, each with a rate that tells it.
PlanRequest Mixed() {
  PlanRequest request;
  const char* sites[] = {"paris", "paris", "paris", "tokyo", "tokyo", "attic"};
  for (int d = 0; d < 6; ++d) request.devices.push_back({.name = "d" + std::to_string(d), .site = sites[d]});
  request.sites = {"paris", "tokyo"};
  request.resources = {{"trunk", 40}, {"port", 25}};
  request.links = {{.src = 0, .dst = 3, .latency_s = 1, .bytes_per_s = 1}, {.src = 5, .dst = 0, .latency_s = 1, .bytes_per_s = 2}};
  request.site_links = {
      {.src = {.site = 0}, .dst = {.site = 0}, .latency_s = 0.1, .bytes_per_s = 100},
      {.src = {.site = 0}, .dst = {.site = 1}, .latency_s = 0.2, .bytes_per_s = 50, .resources = {0}, .through_ports = true},
      {.src = {.site = 1}, .dst = {.site = 0}, .latency_s = 0.3, .bytes_per_s = 30},
      {.src = {.device = 0}, .dst = {.site = 1}, .latency_s = 0.4, .bytes_per_s = 4},
      {.src = {.site = 0}, .dst = {.device = 4}, .latency_s = 0.5, .bytes_per_s = 5}};
  request.devices[2].out_port = 1;
  return request;
}

TEST(DirectedLinksTest, TheMostSpecificRuleWins) {
  const PlanRequest request = Mixed();
  const DirectedLinks links(request);
  EXPECT_EQ(links.Between(0, 3).bytes_per_s, 1) << "the pair's own";
  EXPECT_EQ(links.Between(0, 4).bytes_per_s, 4) << "from a device to a site, before from a site to a device";
  EXPECT_EQ(links.Between(1, 4).bytes_per_s, 5) << "from a site to a device";
  EXPECT_EQ(links.Between(1, 3).bytes_per_s, 40) << "from site to site, over the trunk";
  EXPECT_EQ(links.Between(1, 3).own_bytes_per_s, 50);
  EXPECT_EQ(links.Between(2, 3).bytes_per_s, 25) << "through a narrow port";
  EXPECT_EQ(links.Between(2, 1).bytes_per_s, 100) << "which a rule may leave out";
  EXPECT_EQ(links.Between(3, 1).bytes_per_s, 30);
  EXPECT_EQ(links.Between(3, 4).bytes_per_s, 0) << "no rule inside tokyo";
  EXPECT_EQ(links.Between(5, 0).bytes_per_s, 2);
  EXPECT_EQ(links.Between(0, 5).bytes_per_s, 0) << "one way only";
  std::vector<int> resources;
  links.ForEachResource(2, 3, links.Between(2, 3), [&](int resource) { resources.push_back(resource); });
  EXPECT_THAT(resources, ElementsAre(1, 0)) << "in the order of the way";
}

TEST(DirectedLinksTest, ManySingularDevicesAreSearchedToTheSameEffect) {
  PlanRequest few = Mixed(), many = Mixed();
  // Each of its own kind, so that no table is made.
  for (int d = 0; d < DirectedLinks::kMaxTabulatedKinds; ++d) many.devices.push_back({.name = "x" + std::to_string(d), .site = "attic"});
  const DirectedLinks tabled(few), searched(many);
  ASSERT_GT(searched.kinds(), DirectedLinks::kMaxTabulatedKinds);
  for (int src = 0; src < 6; ++src) {
    for (int dst = 0; dst < 6; ++dst) {
      if (src == dst) continue;
      const DirectedLink a = tabled.Between(src, dst), b = searched.Between(src, dst);
      EXPECT_EQ(std::tuple(a.latency_s, a.bytes_per_s, a.link, a.site_link), std::tuple(b.latency_s, b.bytes_per_s, b.link, b.site_link))
          << src << " -> " << dst;
    }
  }
}

TEST(DirectedLinksTest, AlikeDevicesAreOneKind) {
  PlanRequest request = testing::Chain({.ops = 4}, 1);
  for (int d = 0; d < 40; ++d) testing::AddDevice(request, "site" + std::to_string(d % 4), 1 + d);
  testing::JoinSites(request, 1e8, 1e-3, 1e6, 0.04);
  EXPECT_EQ(DirectedLinks(request).kinds(), 4);
}

// The two ways of saying the same network give the same plan.
TEST(DirectedLinksTest, PairsOrSitesGiveTheSamePlan) {
  PlanRequest pairs = testing::Chain({.ops = 30, .op_s = 0.01, .cut_bytes = 400'000}, 8);
  for (int d = 0; d < 6; ++d) testing::AddDevice(pairs, d % 2 == 0 ? "paris" : "tokyo", 1 + d % 3);
  PlanRequest sites = pairs;
  testing::LinkSites(pairs, 125e6, 1e-3, 2.5e6, 0.04);
  testing::JoinSites(sites, 125e6, 1e-3, 2.5e6, 0.04);
  for (const char* planner : {"op-fence", "equal-ops", "dt-fm"}) {
    const auto a = MakePlan(planner, pairs), b = MakePlan(planner, sites);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(std::get<PlannedPipeline>(*a), std::get<PlannedPipeline>(*b)) << planner;
  }
}

TEST(DirectedLinksTest, BadSiteLinksAreRefusedByName) {
  PlanRequest good = testing::Chain({.ops = 4}, 1);
  for (int d = 0; d < 4; ++d) testing::AddDevice(good, d % 2 == 0 ? "paris" : "tokyo", 1);
  testing::JoinSites(good, 1e8, 1e-3, 1e6, 0.04);
  ASSERT_TRUE(Validate(good).ok()) << Validate(good);
  const auto message = [](const PlanRequest& request) { return std::string(Validate(request).message()); };
  PlanRequest request = good;
  request.site_links[1].bytes_per_s = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(message(request), HasSubstr("link paris -> tokyo: bandwidth nan"));
  request = good;
  request.site_links[1].latency_s = -1;
  EXPECT_THAT(message(request), HasSubstr("link paris -> tokyo: latency -1"));
  request = good;
  request.site_links.push_back(request.site_links[1]);
  EXPECT_THAT(message(request), HasSubstr("link paris -> tokyo: is given twice"));
  request = good;
  request.site_links[0].dst = {.site = 7};
  EXPECT_THAT(message(request), HasSubstr("destination site 7 is not below 2"));
  request = good;
  request.site_links[0].src = {};
  EXPECT_THAT(message(request), HasSubstr("source must be a site or a device"));
  request = good;
  request.site_links[0] = {.src = {.device = 0}, .dst = {.device = 1}, .bytes_per_s = 1};
  EXPECT_THAT(message(request), HasSubstr("paris-0 -> tokyo-0: two devices are a pair"));
  request = good;
  request.sites.push_back("paris");
  EXPECT_THAT(message(request), HasSubstr("site paris: is given twice"));
  request = good;
  request.site_links[1].resources = {99};
  EXPECT_THAT(message(request), HasSubstr("shared link 99"));
  request = good;
  request.devices[0].out_port = 99;
  EXPECT_THAT(message(request), HasSubstr("device paris-0: port 99"));
}

TEST(DirectedLinksTest, MoreThanTheLimitsIsRefusedBeforeAnythingIsMadeOfIt) {
  PlanRequest request = testing::Chain({.ops = 4}, 1);
  request.devices.resize(kMaxDevices + 1);
  EXPECT_THAT(std::string(Validate(request).message()), HasSubstr("devices: 10001 must lie between 0 and 10000"));
  request.devices.resize(1);
  request.links.resize(kMaxLinks + 1);
  EXPECT_THAT(std::string(Validate(request).message()), HasSubstr("links: 2000001"));
}

}  // namespace
}  // namespace fusionllm::scheduler
