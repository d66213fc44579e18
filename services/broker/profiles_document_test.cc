#include "services/broker/profiles_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/job/parse.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::services {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kTopology[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: two-sites}
spec:
  sites:
  - {name: a, devices: [{name: a0, computeScale: 0.5, memory: 1Gi}, {name: a1, threads: 2}], internal: {bandwidth: 1Gbit, latency: 1ms}}
  - {name: b, devices: [{name: b0}, {name: b1, role: spare}], internal: {bandwidth: 1Gbit, latency: 1ms}}
  links:
  - {from: a, to: b, bandwidth: 20Mbit, latency: 40ms, symmetric: true}
  - {from: a0, to: b0, bandwidth: 200Mbit, latency: 5ms}
  - {from: a1, to: b, bandwidth: 5Mbit, latency: 50ms}
)";

job::LinkTable Links() {
  const auto topology = job::ParseTopology(kTopology, "topology.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  auto links = job::LinkTable::Create(*topology);
  EXPECT_TRUE(links.ok()) << links.status();
  return *std::move(links);
}

wire::DeviceProfile Device(const std::string& name) {
  return {.name = name, .site = name.substr(0, 1), .backend = "cpu", .memory_bytes = 1 << 20, .ops = {{"gelu", {.seconds = 1e-3}}}};
}

broker::RunState StateOf(const std::vector<std::string>& devices, std::vector<broker::Link> links) {
  broker::RunOptions options{.known_links = std::move(links), .link_names = LinkNamesOf(Links())};
  for (const std::string& name : devices) options.known_profiles[name] = wire::PrintProfile(Device(name));
  return broker::RunState(options);
}

std::vector<std::string> LinksIn(const std::string& document) {
  const auto parsed = wire::ParseProfiles(document);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> links;
  if (!parsed.ok()) return links;
  for (const wire::MeasuredLink& link : parsed->links) {
    links.push_back(link.src + ">" + link.dst + "@" + std::to_string(static_cast<int>(link.bandwidth_bytes_per_second)) +
                    (link.shared_link.empty() ? "" : " " + link.shared_link));
  }
  return links;
}

const std::vector<broker::Link> kMeasured = {{"a0", "b0", 0.01, 25}, {"a1", "b0", 0.1, 1}, {"a0", "b1", 0.08, 3},
                                             {"b0", "a0", 0.08, 4},  {"a0", "a1", 0, 100}, {"b0", "b1", 0, 200}};

TEST(ProfilesDocument, ADeviceThatHasBecomeSlowIsDescribedSo) {
  const broker::RequestPlan ask{.slowness = {{"b0", 2.5}, {"gone", 3}}};
  const auto slow = wire::ParseProfiles(ProfilesFor(ask, {"a0", "b0"}, StateOf({"a0", "b0"}, kMeasured)));
  ASSERT_TRUE(slow.ok()) << slow.status();
  ASSERT_EQ(slow->devices.size(), 2u);
  EXPECT_DOUBLE_EQ(slow->devices[0].compute_scale, 1);
  EXPECT_DOUBLE_EQ(slow->devices[1].compute_scale, 0.4);
}

TEST(ProfilesDocument, ASpareThatIsPlannedOverIsNoneAndStaysOneForOtherRuns) {
  wire::DeviceProfile spare = Device("a1");
  spare.spare = true;
  const broker::RunState state({.known_profiles = {{"a0", wire::PrintProfile(Device("a0"))}, {"a1", wire::PrintProfile(spare)}}});
  const auto question = wire::ParseProfiles(ProfilesFor({}, {"a0", "a1"}, state));
  const auto saved = wire::ParseProfiles(ProfilesDocument({"a0", "a1"}, state));
  ASSERT_TRUE(question.ok() && saved.ok()) << question.status() << saved.status();
  EXPECT_FALSE(question->devices[1].spare);
  EXPECT_TRUE(saved->devices[1].spare);
}

TEST(ProfilesDocument, LinkNamesOfATopologyAreThosePairsThatTheirSitesDoNotJoin) {
  using Ends = std::pair<std::string, std::string>;
  EXPECT_THAT(LinkNamesOf(Links()),
              UnorderedElementsAre(std::pair(Ends("a0", "b0"), "link:a0->b0"), std::pair(Ends("a1", "b0"), "link:a1->b"),
                                   std::pair(Ends("a1", "b1"), "link:a1->b")));
}

TEST(ProfilesDocument, EveryPairKeepsItsMostSpecificLink) {
  const broker::RunState state = StateOf({"a0", "a1", "b0", "b1"}, kMeasured);
  EXPECT_THAT(LinksIn(ProfilesDocument({"a0", "a1", "b0", "b1"}, state)),
              UnorderedElementsAre("a0>b0@25 link:a0->b0", "a1>b0@1 link:a1->b", "a1>b1@1 link:a1->b", "a0>b1@3", "b0>a0@4", "a0>a1@100",
                                   "b0>b1@200"));
}

TEST(ProfilesDocument, OthersOfTheSiteStandForADeviceThatIsLost) {
  const broker::RunState state = StateOf({"a0", "a1", "b0", "b1"}, kMeasured);
  // Without b0 nothing joins a1 and b1 but the line that was measured with b0, and b to a is known from b0.
  EXPECT_THAT(LinksIn(ProfilesDocument({"a0", "a1", "b1"}, state)),
              UnorderedElementsAre("a1>b1@1 link:a1->b", "a0>b1@3", "b1>a0@4", "a0>a1@100"));
}

TEST(ProfilesDocument, WherePairsOfTwoSitesDisagreeTheMoreCarefulFigureHolds) {
  for (const bool liar_first : {true, false}) {
    std::vector<broker::Link> links = {{"a0", "b1", 0.001, 1'000'000}, {"a0", "b2", 0.08, 3}};
    if (!liar_first) std::swap(links[0], links[1]);
    const auto document = wire::ParseProfiles(ProfilesDocument({"a0", "b1", "b2"}, StateOf({"a0", "b1", "b2"}, links)));
    ASSERT_TRUE(document.ok()) << document.status();
    ASSERT_EQ(document->links.size(), 1u);
    EXPECT_EQ(document->links[0].bandwidth_bytes_per_second, 3);
    EXPECT_EQ(document->links[0].rtt_seconds, 0.08);
  }
}

TEST(ProfilesDocument, DevicesKeepTheOrderAsked) {
  const auto parsed = wire::ParseProfiles(ProfilesDocument({"b0", "a1", "nobody", "a0"}, StateOf({"a0", "a1", "b0"}, {})));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> names;
  for (const wire::DeviceProfile& device : parsed->devices) names.push_back(device.name);
  EXPECT_THAT(names, ElementsAre("b0", "a1", "a0"));
}

TEST(TakeKnownProfiles, TheTopologySaysWhereADeviceIsAndHowSlow) {
  const job::LinkTable topology = Links();
  wire::ProfilesDocument saved{.devices = {Device("a0"), Device("a1"), Device("b0"), Device("b1"), Device("elsewhere")},
                               .links = {{"a0", "b0", 0.1, 7}, {"a0", "elsewhere", 0.1, 8}, {"a1", "b0", 0.1, 9}}};
  saved.devices[0].site = "local";
  saved.devices[2].backend = "ref";
  broker::RunOptions options;
  ASSERT_TRUE(TakeKnownProfiles(wire::PrintProfiles(saved), "cpu", &topology, options).ok());
  std::vector<std::string> names;
  for (const auto& [name, text] : options.known_profiles) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("a0", "b1")) << "a1 has two threads here, b0 was measured with other kernels";
  const auto a0 = wire::ParseProfile(options.known_profiles["a0"]);
  EXPECT_EQ(a0->site, "a");
  EXPECT_EQ(a0->compute_scale, 0.5);
  EXPECT_EQ(a0->memory_bytes, int64_t{1} << 30);
  EXPECT_FALSE(a0->spare);
  EXPECT_TRUE(wire::ParseProfile(options.known_profiles["b1"])->spare);
  EXPECT_TRUE(options.known_links.empty());
}

TEST(TakeKnownProfiles, WithoutATopologyEverythingIsAsSaved) {
  const wire::ProfilesDocument saved{.devices = {Device("a0"), Device("b0")}, .links = {{"a0", "b0", 0.1, 7, "leased"}}};
  broker::RunOptions options;
  ASSERT_TRUE(TakeKnownProfiles(wire::PrintProfiles(saved), "cpu", nullptr, options).ok());
  EXPECT_EQ(*wire::ParseProfile(options.known_profiles["a0"]), saved.devices[0]);
  ASSERT_EQ(options.known_links.size(), 1);
  EXPECT_EQ(options.link_names.at({"a0", "b0"}), "leased");
  EXPECT_THAT(std::string(TakeKnownProfiles("{", "cpu", nullptr, options).message()), HasSubstr("profiles"));
}

}  // namespace
}  // namespace fusionllm::services
