#include "lib/planning/network.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/job/parse.h"
#include "lib/scheduler/directed_links.h"

namespace fusionllm::planning {
namespace {

// Every pair that can talk, with its least rate, as the scheduler resolves the network's rules.
std::vector<scheduler::Link> PairsOf(const Network& network, const std::vector<wire::DeviceProfile>& devices) {
  scheduler::PlanRequest request{
      .resources = network.resources, .links = network.links, .sites = network.sites, .site_links = network.site_links};
  for (size_t d = 0; d < devices.size(); ++d) {
    request.devices.push_back(
        {.name = devices[d].name, .site = devices[d].site, .out_port = network.ports[d].out, .in_port = network.ports[d].in});
  }
  const scheduler::DirectedLinks links(request);
  std::vector<scheduler::Link> pairs;
  for (int src = 0; src < static_cast<int>(devices.size()); ++src) {
    for (int dst = 0; dst < static_cast<int>(devices.size()); ++dst) {
      if (src == dst || links.Between(src, dst).bytes_per_s <= 0) continue;
      const scheduler::DirectedLink link = links.Between(src, dst);
      pairs.push_back({.src = src, .dst = dst, .latency_s = link.latency_s, .bytes_per_s = link.bytes_per_s});
      links.ForEachResource(src, dst, link, [&](int resource) { pairs.back().resources.push_back(resource); });
    }
  }
  return pairs;
}

TEST(NetworkOf, TheRulesOfATopologyGiveTheLinksThatItsTableResolves) {
  const auto topology = job::ParseTopology(R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: mixed}
spec:
  sites:
    - {name: paris, devices: [{name: p0}, {name: p1}, {name: p2}], internal: {bandwidth: 1Gbit, latency: 1ms}}
    - {name: tokyo, devices: [{name: t0}, {name: t1}], internal: {bandwidth: 50Mbit, latency: 2ms}}
    - {name: quito, devices: [{name: q0}, {name: q1}]}
  links:
    - {from: paris, to: tokyo, bandwidth: 100Mbit, latency: 100ms, symmetric: true}
    - {from: paris, to: quito, bandwidth: 80Mbit, latency: 60ms, symmetric: true}
    - {from: tokyo, to: quito, bandwidth: 60Mbit, latency: 90ms}
    - {from: quito, to: tokyo, bandwidth: 30Mbit, latency: 95ms}
    - {from: p1, to: tokyo, bandwidth: 200Mbit, latency: 80ms}
    - {from: quito, to: p1, bandwidth: 20Mbit, latency: 70ms}
    - {from: p0, to: t1, bandwidth: 10Mbit, latency: 50ms, symmetric: true}
    - {from: p0, to: p2, bandwidth: 5Mbit, latency: 3ms}
  sharedUplinks:
    - {site: paris, egress: 90Mbit}
    - {site: tokyo, egress: 40Mbit, ingress: 70Mbit}
)",
                                           "t.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  const auto table = job::LinkTable::Create(*topology);
  const auto network = NetworkOf(*topology);
  ASSERT_TRUE(table.ok() && network.ok());
  std::vector<wire::DeviceProfile> devices;
  for (const job::LinkTable::Place& place : table->devices())
    devices.push_back({.name = place.device.name, .site = topology->spec.sites[place.site].name});
  const std::vector<scheduler::Link> pairs = PairsOf(*network, devices);
  EXPECT_EQ(pairs.size(), 7u * 6u);
  for (const scheduler::Link& pair : pairs) {
    SCOPED_TRACE(absl::StrCat(devices[pair.src].name, " -> ", devices[pair.dst].name));
    const auto wanted = table->Between(devices[pair.src].name, devices[pair.dst].name);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    EXPECT_DOUBLE_EQ(pair.latency_s, wanted->latency.seconds());
    EXPECT_DOUBLE_EQ(pair.bytes_per_s, wanted->bandwidth.bytes_per_s());
    std::vector<std::string> path, wanted_path;
    for (const int resource : pair.resources) path.push_back(network->resources[resource].name);
    for (const job::LinkResource& resource : wanted->path) wanted_path.push_back(resource.name);
    EXPECT_EQ(path, wanted_path);
  }
}

TEST(NetworkOf, TheSizeIsThatOfTheDocument) {
  std::vector<wire::DeviceProfile> devices(wire::kMaxProfiledDevices);
  for (size_t d = 0; d < devices.size(); ++d) devices[d] = {.name = absl::StrCat("d", d), .site = d % 2 == 0 ? "paris" : "tokyo"};
  const Network network = NetworkOf(devices, {{"d0", "d1", 0.08, 2e6}, {"d0", "d2", 0.002, 1e8}, {"d1", "d3", 0.002, 1e8}});
  EXPECT_EQ(network.links.size(), 0u);
  EXPECT_EQ(network.site_links.size(), 4u);
  EXPECT_EQ(network.resources.size(), 2 * devices.size() + 2);
}

TEST(NetworkOf, OneMeasuredPairSpeaksForItsSites) {
  std::vector<wire::DeviceProfile> devices(4);
  for (int i = 0; i < 4; ++i) devices[i] = {.name = absl::StrCat("d", i), .site = i < 2 ? "paris" : "tokyo"};
  const Network network =
      NetworkOf(devices, {{"d0", "d2", 0.08, 2e6}, {"d2", "d0", 0.08, 1e6}, {"d0", "d1", 0.002, 1e8}, {"d3", "d2", 0.004, 5e7}});
  const std::vector<scheduler::Link> pairs = PairsOf(network, devices);
  EXPECT_EQ(pairs.size(), 12);
  std::map<std::string, std::set<std::string>> users;
  for (const scheduler::Link& link : pairs) {
    const bool across = (link.src < 2) != (link.dst < 2);
    EXPECT_DOUBLE_EQ(link.latency_s, across ? 0.04 : link.src < 2 ? 0.001 : 0.002);
    EXPECT_DOUBLE_EQ(link.bytes_per_s, across ? (link.src < 2 ? 2e6 : 1e6) : link.src < 2 ? 1e8 : 5e7);
    for (const int resource : link.resources) users[network.resources[resource].name].insert(absl::StrCat(link.src, link.dst));
  }
  EXPECT_EQ(users["link:paris->tokyo"].size(), 4);
  EXPECT_EQ(users["link:tokyo->paris"].size(), 4);
  EXPECT_EQ(users["port:d0:out"].size(), 1);
}

TEST(NetworkOf, ALineBetweenTwoDevicesIsTheirsAlone) {
  std::vector<wire::DeviceProfile> devices(4);
  for (int i = 0; i < 4; ++i) devices[i] = {.name = absl::StrCat("d", i), .site = i < 2 ? "paris" : "tokyo"};
  // d0 and d2 have a fast line; d1 and d3 share a slow one with d0 and d3; the sites' own link lies between.
  const Network network = NetworkOf(devices, {{"d0", "d2", 0.02, 5e7, "fast"},
                                              {"d1", "d2", 0.08, 2e6},
                                              {"d0", "d3", 0.3, 1e5, "slow"},
                                              {"d1", "d3", 0.3, 1e5, "slow"},
                                              {"d0", "d1", 0.002, 1e8},
                                              {"d2", "d3", 0.002, 1e8}});
  const std::vector<scheduler::Link> pairs = PairsOf(network, devices);
  const auto between = [&](int src, int dst) {
    for (const scheduler::Link& link : pairs) {
      if (link.src == src && link.dst == dst) return link;
    }
    ADD_FAILURE() << "no link " << src << " -> " << dst;
    return scheduler::Link{};
  };
  EXPECT_EQ(pairs.size(), 12);
  EXPECT_DOUBLE_EQ(between(0, 2).bytes_per_s, 5e7);
  EXPECT_DOUBLE_EQ(between(0, 2).latency_s, 0.01);
  EXPECT_DOUBLE_EQ(between(1, 2).bytes_per_s, 2e6) << "not the fast line of the other two";
  EXPECT_DOUBLE_EQ(between(2, 0).bytes_per_s, 2e6) << "the line goes one way";
  EXPECT_DOUBLE_EQ(between(0, 3).bytes_per_s, 1e5);
  EXPECT_EQ(between(0, 3).resources, between(1, 3).resources) << "they share it";
  EXPECT_NE(between(0, 2).resources, between(1, 2).resources);
}

}  // namespace
}  // namespace fusionllm::planning
