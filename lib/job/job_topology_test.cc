#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/job/topology.h"

namespace fusionllm::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kHead[] = "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec:\n";
constexpr char kSites[] =
    "  sites:\n"
    "  - {name: a, devices: [{name: a0}, {name: a1}], internal: {bandwidth: 1Gbit, latency: 1ms}}\n"
    "  - {name: b, devices: [{name: b0}, {name: b1}], internal: {bandwidth: 100Mbit, latency: 2ms}}\n";

std::string TwoSites(const std::string& links) { return absl::StrCat(kHead, kSites, links); }

LinkTable Table(const std::string& links) {
  const absl::StatusOr<Topology> topology = ParseTopology(TwoSites(links), "t.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  absl::StatusOr<LinkTable> table = LinkTable::Create(*topology);
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

std::string Path(const EffectiveLink& link) {
  return absl::StrJoin(link.path, " ", [](std::string* out, const LinkResource& resource) {
    absl::StrAppend(out, resource.name, "=", ToString(resource.bandwidth));
  });
}

TEST(LinkTableTest, ALinkBetweenSitesIsOneResourceInEachDirection) {
  const LinkTable table = Table("  links: [{from: a, to: b, bandwidth: 10Mbit, latency: 40ms, jitter: 3ms, loss: 0.01, symmetric: true}]");
  const EffectiveLink link = *table.Between("a0", "b1");
  EXPECT_EQ(Path(link), "port:a0:out=1Gbit link:a->b=10Mbit port:b1:in=100Mbit");
  EXPECT_EQ(ToString(link.bandwidth), "10Mbit");
  EXPECT_EQ(ToString(link.latency), "40ms");
  EXPECT_EQ(ToString(link.jitter), "3ms");
  EXPECT_EQ(link.loss, 0.01);
  EXPECT_EQ(Path(*table.Between("b0", "a0")), "port:b0:out=100Mbit link:b->a=10Mbit port:a0:in=1Gbit");
}

TEST(LinkTableTest, InsideASiteTheLatencyCountsOnce) {
  const LinkTable table = Table("  links: [{from: a, to: b, bandwidth: 10Mbit, symmetric: true}]");
  const EffectiveLink link = *table.Between("b0", "b1");
  EXPECT_EQ(Path(link), "port:b0:out=100Mbit port:b1:in=100Mbit");
  EXPECT_EQ(ToString(link.latency), "2ms");
}

TEST(LinkTableTest, TheMostSpecificLinkWins) {
  const LinkTable table = Table(
      "  links:\n"
      "  - {from: a, to: b, bandwidth: 10Mbit, symmetric: true}\n"
      "  - {from: a0, to: b, bandwidth: 20Mbit}\n"
      "  - {from: b, to: a1, bandwidth: 30Mbit}\n"
      "  - {from: a0, to: b1, bandwidth: 5Mbit, latency: 9ms}\n"
      "  - {from: a0, to: a1, bandwidth: 2Gbit}");
  EXPECT_EQ(Path(*table.Between("a1", "b0")), "port:a1:out=1Gbit link:a->b=10Mbit port:b0:in=100Mbit");
  EXPECT_EQ(Path(*table.Between("a0", "b0")), "port:a0:out=1Gbit link:a0->b=20Mbit port:b0:in=100Mbit");
  EXPECT_EQ(Path(*table.Between("b0", "a1")), "port:b0:out=100Mbit link:b->a1=30Mbit port:a1:in=1Gbit");
  EXPECT_EQ(Path(*table.Between("b0", "a0")), "port:b0:out=100Mbit link:b->a=10Mbit port:a0:in=1Gbit");
  EXPECT_EQ(Path(*table.Between("a0", "b1")), "link:a0->b1=5Mbit");
  EXPECT_EQ(ToString(table.Between("a0", "b1")->latency), "9ms");
  EXPECT_EQ(Path(*table.Between("a0", "a1")), "link:a0->a1=2Gbit");
  EXPECT_EQ(Path(*table.Between("a1", "a0")), "port:a1:out=1Gbit port:a0:in=1Gbit");
}

TEST(LinkTableTest, AWrittenDirectionGoesBeforeTheWayBackOfASymmetricLink) {
  const LinkTable table = Table(
      "  links:\n  - {from: a, to: b, bandwidth: 10Mbit, symmetric: true}\n"
      "  - {from: b, to: a, bandwidth: 1Mbit, latency: 7ms}");
  EXPECT_EQ(ToString(table.Between("a0", "b0")->bandwidth), "10Mbit");
  EXPECT_EQ(ToString(table.Between("b0", "a0")->bandwidth), "1Mbit");
  EXPECT_EQ(ToString(table.Between("b0", "a0")->latency), "7ms");
}

TEST(LinkTableTest, SharedUplinksLieOnTheWayBetweenSitesOnly) {
  const LinkTable table = Table(
      "  links: [{from: a, to: b, bandwidth: 10Mbit, symmetric: true}]\n"
      "  sharedUplinks: [{site: a, egress: 6Mbit, ingress: 60Mbit}, {site: b, ingress: 7Mbit}]");
  EXPECT_EQ(Path(*table.Between("a0", "b0")), "port:a0:out=1Gbit uplink:a:out=6Mbit link:a->b=10Mbit uplink:b:in=7Mbit port:b0:in=100Mbit");
  EXPECT_EQ(ToString(table.Between("a0", "b0")->bandwidth), "6Mbit");
  EXPECT_EQ(Path(*table.Between("b0", "a0")), "port:b0:out=100Mbit link:b->a=10Mbit uplink:a:in=60Mbit port:a0:in=1Gbit");
  EXPECT_EQ(Path(*table.Between("a0", "a1")), "port:a0:out=1Gbit port:a1:in=1Gbit");
}

TEST(LinkTableTest, UnknownDevicesAndSelfAreRefused) {
  const LinkTable table = Table("  links: [{from: a, to: b, bandwidth: 10Mbit, symmetric: true}]");
  EXPECT_EQ(std::string(table.Between("a0", "c0").status().message()), "no device c0 in topology t");
  EXPECT_EQ(table.Between("a", "b0").status().code(), absl::StatusCode::kNotFound) << "a site is no device";
  EXPECT_EQ(table.Between("a0", "a0").status().code(), absl::StatusCode::kInvalidArgument);
}

std::string TopologyErrorOf(const std::string& yaml) { return std::string(ParseTopology(yaml, "t.yaml").status().message()); }
std::string ErrorOfLinks(const std::string& links) { return TopologyErrorOf(TwoSites(links)); }
std::string ErrorOfDevice(const std::string& device) {
  return TopologyErrorOf(absl::StrCat(kHead, "  sites: [{name: a, devices: [{name: a0}, ", device, "]}]"));
}

TEST(TopologyErrorsTest, GpusThatAreMeantAreNamedAndAllOfThemListedOnce) {
  const std::string error =
      TopologyErrorOf(absl::StrCat(kHead,
                                   "  sites:\n  - {name: a, devices: [{name: a0, profile: h100}, {name: a1, profile: h100}]}\n"
                                   "  - {name: b, devices: [{name: b0, profile: A100}, {name: b1, profile: tpu}]}\n"
                                   "  links: [{from: a, to: b, bandwidth: 1Gbit, latency: 1ms, symmetric: true}]"));
  const std::vector<std::string> lines = absl::StrSplit(error, '\n');
  ASSERT_EQ(lines.size(), 4u) << error;
  EXPECT_THAT(lines[0], HasSubstr("devices[0].profile: no GPU profile is named h100; did you mean nvidia-h100-sxm? (there are amd-"));
  EXPECT_THAT(lines[1], ::testing::EndsWith("devices[1].profile: no GPU profile is named h100; did you mean nvidia-h100-sxm?"));
  EXPECT_THAT(lines[2], ::testing::EndsWith("did you mean nvidia-a100-40gb?"));
  EXPECT_THAT(lines[3], ::testing::EndsWith("no GPU profile is named tpu"));
}

TEST(TopologyErrorsTest, DevicesAndSites) {
  EXPECT_EQ(ErrorOfDevice("{name: a1}"), "");
  EXPECT_EQ(ErrorOfDevice("{name: a0}"),
            "t.yaml:5: spec.sites[0].devices[1].name: the name a0 is given twice: sites and devices share one set of names");
  EXPECT_EQ(ErrorOfDevice("{name: a}"),
            "t.yaml:5: spec.sites[0].devices[1].name: the name a is given twice: sites and devices share one set of names");
  EXPECT_EQ(ErrorOfDevice("{name: x, computeScale: 0}"),
            "t.yaml:5: spec.sites[0].devices[1].computeScale: must be at least 1.0e-06, got 0");
  EXPECT_EQ(ErrorOfDevice("{name: x, computeScale: 1e-300}"),
            "t.yaml:5: spec.sites[0].devices[1].computeScale: must be at least 1.0e-06, got 1e-300");
  EXPECT_EQ(ErrorOfDevice("{name: x, computeScale: 1.01}"), "t.yaml:5: spec.sites[0].devices[1].computeScale: must be at most 1, got 1.01");
  EXPECT_EQ(ErrorOfDevice("{name: x, threads: 0}"), "t.yaml:5: spec.sites[0].devices[1].threads: must be at least 1, got 0");
  EXPECT_EQ(ErrorOfDevice("{name: x, role: idle}"),
            "t.yaml:5: spec.sites[0].devices[1].role: must be one of executor, spare, got \"idle\"");
  EXPECT_EQ(ErrorOfDevice("{name: x, memory: lots}"),
            "t.yaml:5: spec.sites[0].devices[1].memory: \"lots\" is no size: write a number and Ki, Mi, Gi or Ti (bytes), as in 2Gi");
  EXPECT_EQ(ErrorOfDevice("{name: x, profile: nvidia-l4}"), "");
  for (const char* name : {"NVIDIA GeForce RTX 4090", "nvidia-geforce-rtx-4090", "GeForce_RTX_4090"}) {
    EXPECT_THAT(ErrorOfDevice(absl::StrCat("{name: x, profile: ", name, "}")), HasSubstr("did you mean nvidia-rtx-4090?")) << name;
  }
  EXPECT_THAT(
      ErrorOfDevice("{name: x, profile: nvidia-l5}"),
      HasSubstr("t.yaml:5: spec.sites[0].devices[1].profile: no GPU profile is named nvidia-l5; did you mean nvidia-l4? (there are amd-"));
  EXPECT_EQ(ErrorOfDevice("{name: x, profile: nvidia-l4, threads: 2}"),
            "t.yaml:5: spec.sites[0].devices[1].threads: belongs to devices that this machine emulates, not to one with a profile");
  EXPECT_EQ(ErrorOfDevice("{}"), "t.yaml:5: spec.sites[0].devices[1].name: required");
  EXPECT_EQ(TopologyErrorOf(absl::StrCat(kHead, "  sites: []")), "t.yaml:5: spec.sites: must have at least one site");
  EXPECT_EQ(TopologyErrorOf(absl::StrCat(kHead, "  sites: [{name: a, devices: []}]")),
            "t.yaml:5: spec.sites[0].devices: must have at least one device");
  EXPECT_EQ(TopologyErrorOf(absl::StrCat(kHead, "  sites: [{name: a, devices: [{name: a0, role: spare}]}]")),
            "t.yaml:5: spec.sites: every device is a spare: at least one must have role executor");
}

TEST(TopologyErrorsTest, NamesThatDifferInCaseAreOne) {
  constexpr char kWhere[] = "t.yaml:5: spec.sites[0].devices[1].name: ";
  EXPECT_EQ(ErrorOfDevice("{name: A0}"),
            absl::StrCat(kWhere, "the name A0 is that of a0: sites and devices share one set of names, and case makes no difference"));
  EXPECT_THAT(ErrorOfDevice("{name: A}"), HasSubstr("the name A is that of a: sites and devices"));
}

TEST(TopologyErrorsTest, DevicesHaveNoNameThatAnExecutorCannotHave) {
  constexpr char kWhere[] = "t.yaml:5: spec.sites[0].devices[1].name: ";
  for (const char* name : {"broker", "Scheduler", "client", "ca", "CA", "localhost", "127.0.0.1"}) {
    EXPECT_THAT(ErrorOfDevice(absl::StrCat("{name: ", name, "}")), ::testing::StartsWith(absl::StrCat(kWhere, "the name '", name, "' ")))
        << name;
  }
  EXPECT_EQ(TopologyErrorOf(absl::StrCat(kHead, "  sites: [{name: broker, devices: [{name: a0}]}]")), "") << "no process has a site's name";
}

TEST(TopologyErrorsTest, Links) {
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: b, bandwidth: 0Mbit, symmetric: true}]"),
            "t.yaml:8: spec.links[0].bandwidth: a bandwidth must be at least 1bit, got 0Mbit");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: b, bandwidth: -1Mbit, symmetric: true}]"),
            "t.yaml:8: spec.links[0].bandwidth: a bandwidth must not be negative, got -1Mbit");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: b, symmetric: true}]"), "t.yaml:8: spec.links[0].bandwidth: required");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: b, bandwidth: 1Mbit, loss: 1, symmetric: true}]"),
            "t.yaml:8: spec.links[0].loss: must be below 1, got 1");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: bb, bandwidth: 1Mbit, symmetric: true}]"),
            "t.yaml:8: spec.links[0].to: no site or device is named bb; did you mean b0?");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: frankfurt, bandwidth: 1Mbit, symmetric: true}]"),
            "t.yaml:8: spec.links[0].to: no site or device is named frankfurt; there are a, a0, a1, b, b0, b1");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: a, bandwidth: 1Mbit}, {from: a, to: b, bandwidth: 1Mbit, symmetric: true}]"),
            "t.yaml:8: spec.links[0]: leads from a to itself: the network inside a site is its `internal`");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a0, to: a, bandwidth: 1Mbit}, {from: a, to: b, bandwidth: 1Mbit, symmetric: true}]"),
            "t.yaml:8: spec.links[0]: stays inside site a: use its `internal`, or name two devices");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: b, bandwidth: 1Mbit}, {from: a, to: b, bandwidth: 1Mbit, symmetric: true}]"),
            "t.yaml:8: spec.links[1]: from a to b is already given by spec.links[0]");
}

TEST(TopologyErrorsTest, PairsWithoutALinkAreNamed) {
  EXPECT_EQ(ErrorOfLinks(""),
            "t.yaml:4: spec.links: no link leads from a0 to b0: add one from a to b\n"
            "t.yaml:4: spec.links: no link leads from b0 to a0: add one from b to a");
  EXPECT_EQ(ErrorOfLinks("  links: [{from: a, to: b, bandwidth: 1Mbit}]"),
            "t.yaml:8: spec.links: no link leads from b0 to a0: add one from b to a, or symmetric: true to spec.links[0]");
  EXPECT_EQ(ErrorOfLinks(
                "  links: [{from: a, to: b, bandwidth: 1Mbit}, {from: b0, to: a, bandwidth: 1Mbit}, {from: b1, to: a1, bandwidth: 1Mbit}]"),
            "t.yaml:8: spec.links: no link leads from b1 to a0: add one from b to a, or symmetric: true to spec.links[0]");
  EXPECT_THAT(ErrorOfLinks("  links: [{from: a, to: b, bandwidth: 1Mbit, symmetric: true}, {from: a0, to: b, bandwidth: 1Mbit}, "
                           "{from: a, to: b0, bandwidth: 1Mbit}]"),
              HasSubstr("from a0 to b0 two links apply, one to its site and one from its site"));
}

TEST(TopologyErrorsTest, Uplinks) {
  const std::string links = "  links: [{from: a, to: b, bandwidth: 1Mbit, symmetric: true}]\n";
  EXPECT_EQ(ErrorOfLinks(links + "  sharedUplinks: [{site: a0, egress: 1Mbit}]"),
            "t.yaml:9: spec.sharedUplinks[0].site: a0 is a device, not a site");
  EXPECT_EQ(ErrorOfLinks(links + "  sharedUplinks: [{site: a}]"), "t.yaml:9: spec.sharedUplinks[0]: must have egress, ingress or both");
  EXPECT_EQ(ErrorOfLinks(links + "  sharedUplinks: [{site: a, egress: 1Mbit}, {site: a, egress: 1Mbit}]"),
            "t.yaml:9: spec.sharedUplinks[1].site: a is already given by spec.sharedUplinks[0]");
}

TEST(TopologyErrorsTest, ATopologyOfThousandsOfDevicesIsAnsweredAtOnce) {
  std::string yaml = absl::StrCat(kHead, "  sites:\n");
  for (int site = 0; site < 200; ++site) {
    absl::StrAppend(&yaml, "  - {name: s", site, ", devices: [");
    for (int device = 0; device < 40; ++device) absl::StrAppend(&yaml, "{name: s", site, "-", device, "},");
    absl::StrAppend(&yaml, "]}\n");
  }
  EXPECT_THAT(TopologyErrorOf(yaml), HasSubstr("no link leads from s0-0 to s1-0"));
}

TEST(TopologyTest, ByteOrderMarkAndLineEndsOfWindowsMakeNoDifference) {
  const auto of_windows = [](const std::string& text) { return absl::StrCat("\xEF\xBB\xBF", absl::StrReplaceAll(text, {{"\n", "\r\n"}})); };
  const std::string yaml = absl::StrCat(
      "# two sites\n", TwoSites("  links:\n  - from: a\n    to: b\n    bandwidth: 10Mbit\n    latency: 40ms\n    symmetric: true\n"));
  const absl::StatusOr<Topology> plain = ParseTopology(yaml, "t.yaml");
  ASSERT_TRUE(plain.ok()) << plain.status();
  const absl::StatusOr<Topology> other = ParseTopology(of_windows(yaml), "t.yaml");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(*other, *plain);
  const std::string wrong = TwoSites("  links:\n  - from: a\n    to: b\n    bandwidth: much\n");
  EXPECT_THAT(TopologyErrorOf(wrong), HasSubstr("t.yaml:11: "));
  EXPECT_EQ(TopologyErrorOf(of_windows(wrong)), TopologyErrorOf(wrong)) << "lines are counted alike";
}

// A topology as large as the planner takes: 10,000 devices and as many links, in more text than a job may have.
TEST(TopologyTest, TenThousandDevicesAreRead) {
  std::string yaml = "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: large}\nspec:\n  sites:\n";
  for (int site = 0; site < 100; ++site) {
    absl::StrAppend(&yaml, "  - name: site-", site, "\n    internal: {bandwidth: 10Gbit, latency: 50us}\n    devices:\n");
    for (int device = 0; device < 100; ++device) {
      absl::StrAppend(&yaml, "    - {name: site-", site, "-device-", device, ", computeScale: 0.5, memory: 24Gi, threads: 1}\n");
    }
  }
  absl::StrAppend(&yaml, "  links:\n");
  for (int from = 0; from < 100; ++from) {
    for (int to = 0; to < 100; ++to) {
      if (from != to) absl::StrAppend(&yaml, "  - {from: site-", from, ", to: site-", to, ", bandwidth: 100Mbit, latency: 20ms}\n");
    }
  }
  ASSERT_GT(yaml.size(), size_t{1} << 20);
  const absl::StatusOr<Topology> topology = ParseTopology(yaml, "large.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(topology->spec.sites.size(), 100u);
  EXPECT_EQ(topology->spec.sites[99].devices.size(), 100u);
  EXPECT_EQ(topology->spec.links.size(), 9'900u);
}

}  // namespace
}  // namespace fusionllm::job
