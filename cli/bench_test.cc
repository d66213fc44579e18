// Saved calibrations: what `fusionctl bench --calibrate` writes reads back as it was, says how certain it is, and is enough to plan by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/commands/emulated_links.h"
#include "cli/testing/fusionctl.h"
#include "lib/job/parse.h"
#include "lib/planning/network.h"
#include "lib/wire/plan_json.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kTokenJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: gpt2, preset: tiny, config: {nLayer: 2, nHead: 2, nEmbd: 32, vocabSize: 64, blockSize: 32}}\n"
    "  data: {kind: tokens, path: [none.bin]}\n"
    "  training: {steps: 2, globalBatchSize: 8, microBatchSize: 2, sequenceLength: 16}\n";

// Unequal directions between the sites, and a link of their own between two devices.
constexpr char kUnevenTopology[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec:\n"
    "  sites:\n"
    "  - {name: a, devices: [{name: a-0}, {name: a-1}], internal: {bandwidth: 1Gbit, latency: 1ms}}\n"
    "  - {name: b, devices: [{name: b-0}, {name: b-1}], internal: {bandwidth: 500Mbit, latency: 2ms}}\n"
    "  links:\n"
    "  - {from: a, to: b, bandwidth: 20Mbit, latency: 30ms}\n"
    "  - {from: b, to: a, bandwidth: 5Mbit, latency: 10ms}\n"
    "  - {from: a-1, to: b-1, bandwidth: 80Mbit, latency: 4ms}\n";

std::vector<wire::MeasuredLink> Links(const std::string& yaml) {
  const auto topology = job::ParseTopology(yaml, "t.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  const auto links = MeasureEmulatedLinks(*topology, {"a-0", "a-1", "b-0", "b-1"});
  EXPECT_TRUE(links.ok()) << links.status();
  return *links;
}

const wire::MeasuredLink& Between(const std::vector<wire::MeasuredLink>& links, const std::string& src, const std::string& dst) {
  for (const wire::MeasuredLink& link : links) {
    if (link.src == src && link.dst == dst) return link;
  }
  ADD_FAILURE() << "no link " << src << " -> " << dst;
  return links.front();
}

TEST(MeasureEmulatedLinks, FindsLatencyAndBandwidthOfEachDirection) {
  const auto links = Links(kUnevenTopology);
  EXPECT_EQ(links.size(), 5) << "inside a, inside b, there, back, and the pair with its own";
  struct Wanted {
    const char *src, *dst;
    double latency_s, bytes_per_s, rtt_s;
  };
  for (const Wanted& wanted : {Wanted{"a-0", "b-0", 0.030, 2.5e6, 0.040}, Wanted{"b-0", "a-0", 0.010, 6.25e5, 0.040},
                               Wanted{"a-0", "a-1", 0.001, 1.25e8, 0.002}, Wanted{"b-0", "b-1", 0.002, 6.25e7, 0.004}}) {
    SCOPED_TRACE(absl::StrCat(wanted.src, " -> ", wanted.dst));
    const wire::MeasuredLink& link = Between(links, wanted.src, wanted.dst);
    EXPECT_NEAR(*link.latency_seconds / wanted.latency_s, 1, 0.01);
    EXPECT_NEAR(link.bandwidth_bytes_per_second / wanted.bytes_per_s, 1, 0.01);
    EXPECT_NEAR(link.rtt_seconds / wanted.rtt_s, 1, 0.01);
    EXPECT_EQ(link.shared_link, "");
    EXPECT_GT(link.samples, 20);
    ASSERT_TRUE(link.latency_ci95_seconds.has_value() && link.bandwidth_ci95_bytes_per_second.has_value());
    EXPECT_LT(*link.latency_ci95_seconds, 0.02 * wanted.latency_s) << "nothing disturbs it";
  }
  const wire::MeasuredLink& own = Between(links, "a-1", "b-1");
  EXPECT_EQ(own.shared_link, "link:a-1->b-1");
  EXPECT_NEAR(own.bandwidth_bytes_per_second / 1e7, 1, 0.01);
}

TEST(MeasureEmulatedLinks, JitterWidensTheIntervalsWhichStillHoldTheTruth) {
  const auto calm = Links(kUnevenTopology);
  const auto shaky = Links(absl::StrReplaceAll(kUnevenTopology, {{"latency: 30ms", "latency: 30ms, jitter: 20ms"}}));
  const wire::MeasuredLink &before = Between(calm, "a-0", "b-0"), &after = Between(shaky, "a-0", "b-0");
  EXPECT_GT(*after.latency_ci95_seconds, 10 * *before.latency_ci95_seconds);
  // Jitter adds half of itself in the mean, and for transfers of many slices, the last of which counts, nearly all of it.
  EXPECT_GT(*after.latency_seconds, 0.030);
  EXPECT_LT(*after.latency_seconds, 0.052);
  EXPECT_NEAR(after.bandwidth_bytes_per_second, 2.5e6, *after.bandwidth_ci95_bytes_per_second + 0.05 * 2.5e6);
}

TEST(MeasureEmulatedLinks, PlansByThemSeeTheNetworkOfTheTopology) {
  const auto topology = job::ParseTopology(kUnevenTopology, "t.yaml");
  std::vector<wire::DeviceProfile> devices;
  for (const char* name : {"a-0", "a-1", "b-0", "b-1"}) devices.push_back({.name = name, .site = std::string(1, name[0])});
  const planning::Network network = planning::NetworkOf(devices, Links(kUnevenTopology));
  ASSERT_EQ(network.site_links.size(), 4);
  for (const scheduler::SiteLink& link : network.site_links) {
    const std::string sites = network.sites[link.src.site] + network.sites[link.dst.site];
    const double latency_s = sites == "ab" ? 0.030 : sites == "ba" ? 0.010 : sites == "aa" ? 0.001 : 0.002;
    EXPECT_NEAR(link.latency_s / latency_s, 1, 0.01) << sites << ": one way, not half of the round trip";
  }
  ASSERT_EQ(network.links.size(), 1) << "the pair with its own";
}

TEST(MeasureEmulatedLinks, TooManyDevicesAreRefused) {
  const auto topology = job::ParseTopology(kUnevenTopology, "t.yaml");
  EXPECT_EQ(MeasureEmulatedLinks(*topology, std::vector<std::string>(kMaxLinkedDevices + 1, "a-0")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(BenchCalibrate, WhatItSavesReadsBackAndIsEnoughToPlanBy) {
  Fusionctl program;
  program.Write("job.yaml", kTokenJob);
  program.Write("t.yaml", kUnevenTopology);
  const Outcome outcome = program.Run("bench job.yaml --topology t.yaml --calibrate -o p.json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("on 4 devices, 5 links"));
  const std::string text = base::ReadWholeFile(program.Path("p.json"));
  const auto profiles = wire::ParseProfiles(text);
  ASSERT_TRUE(profiles.ok()) << profiles.status();
  EXPECT_EQ(wire::PrintProfiles(*profiles) + "\n", text);
  ASSERT_TRUE(profiles->devices[0].rates.contains("matmul"));
  EXPECT_TRUE(profiles->devices[0].rates.at("matmul").seconds_per_flop_ci95.has_value()) << "30 samples tell something";

  const std::string plan = "plan job.yaml --profiles p.json --strategy equal-ops --explain ";
  const Outcome same = program.Run(plan);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("every op of the plan was measured"));
  const Outcome other = program.Run(plan + "--set spec.model.config.nEmbd=64");
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("regression of op classes"));
  EXPECT_THAT(other.out, HasSubstr("may be off by"));
}

}  // namespace
}  // namespace fusionllm::cli
