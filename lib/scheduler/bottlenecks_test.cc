#include "lib/scheduler/bottlenecks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "gtest/gtest.h"

namespace fusionllm::scheduler {
namespace {

TEST(BottlenecksTest, TheBottleneckIsWhatGainsMost) {
  PipelineInput input;
  input.micro_batches = 32;
  input.stages.assign(3, {.forward_s = 1, .backward_s = 2, .in_flight = 8});
  input.shared_links = 4;
  for (int s = 0; s < 2; ++s) input.links.push_back({s, s + 1, {true, 0, {{2 * s, 0.1}}}, {true, 0, {{2 * s + 1, 0.1}}}});
  input.stages[1].backward_s = 6;
  Simulation simulation = Simulate(input, std::vector<std::string>(4));
  std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, simulation, 8);
  ASSERT_FALSE(bottlenecks.empty());
  EXPECT_EQ(bottlenecks[0].kind, Bottleneck::Kind::kStage);
  EXPECT_EQ(bottlenecks[0].index, 1);
  EXPECT_NEAR(bottlenecks[0].gain, kProbedSpeedUp, 0.02);
  EXPECT_NEAR(bottlenecks[0].busy_ratio, 32 * 7 / simulation.step_s, 1e-9);
  input.links[1].backward.shared_links[0].hold_s = 20;
  simulation = Simulate(input, std::vector<std::string>(4));
  bottlenecks = FindBottlenecks(input, simulation, 8);
  EXPECT_EQ(bottlenecks[0].kind, Bottleneck::Kind::kLink);
  const LinkUsage& link = simulation.links[bottlenecks[0].index];
  EXPECT_TRUE(link.src == 2 && link.dst == 1 && link.kind == LinkUsage::Kind::kGradients);
  input.links[1].backward.shared_links[0].hold_s = 0.1;
  input.links[0].forward.latency_s = 300;
  simulation = Simulate(input, std::vector<std::string>(4));
  EXPECT_EQ(FindBottlenecks(input, simulation, 8)[0].kind, Bottleneck::Kind::kLatency);
}

// Two stages with a shared link, number 2.
PipelineInput TwoStagesTied(double tied_s) {
  PipelineInput input;
  input.micro_batches = 4;
  input.stages.assign(2, {.forward_s = 0.1, .backward_s = 0.2, .update_s = 0.01, .in_flight = 4});
  input.shared_links = 4;
  input.links = {{0, 1, {true, 0.05, {{0, 0.1}, {2, 0.1}}}, {true, 0.05, {{1, 0.1}, {3, 0.1}}}}};
  if (tied_s > 0) {
    input.tied = {{.from = 0, .to = 1, .channel = {true, 0.05, {{0, tied_s}, {2, tied_s}}, 322}},
                  {.from = 1, .to = 0, .channel = {true, 0.05, {{1, tied_s}, {3, tied_s}}, 322}}};
  }
  input.reports = {{1, 0, 0.06, 0.05, 10}};
  input.decisions = {{0, 1, 0.06, 0.05, 10}};
  return input;
}

TEST(BottlenecksTest, TiedGradientsThatFillALinkAreNamedBeforeTheLink) {
  const PipelineInput input = TwoStagesTied(25);
  const std::vector<std::string> shared_links = {"", "", "there", "back"};
  const Simulation simulation = Simulate(input, shared_links);
  const std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, simulation, 8);
  EXPECT_EQ(bottlenecks[0].kind, Bottleneck::Kind::kTied);
  EXPECT_EQ(bottlenecks[0].index, 0);
  EXPECT_NEAR(bottlenecks[0].busy_ratio * simulation.step_s, 25.05, 1e-9);
  EXPECT_NEAR(bottlenecks[0].gain * simulation.step_s, 2.5, 1e-9);
  for (const LinkUsage& use : simulation.links) {
    if (use.kind != LinkUsage::Kind::kTied) continue;
    EXPECT_EQ(use.bytes, 322);
    EXPECT_NEAR(use.busy_s, 25, 1e-9);
  }
  EXPECT_TRUE(simulation.shared[0].pairs == 1 && simulation.shared[1].pairs == 1) << "one pair's line is no shared one";
  EXPECT_GT(simulation.stages[0].end_s, 25);
}

TEST(BottlenecksTest, ASmallPartOfALinkIsNoBottleneck) {
  const PipelineInput input = TwoStagesTied(0.01);
  for (const Bottleneck& bottleneck : FindBottlenecks(input, Simulate(input, std::vector<std::string>(4)), 8)) {
    if (bottleneck.kind != Bottleneck::Kind::kTied) continue;
    EXPECT_LT(bottleneck.gain, 0.01);
  }
  EXPECT_NE(FindBottlenecks(input, Simulate(input, std::vector<std::string>(4)), 8)[0].kind, Bottleneck::Kind::kTied);
}

TEST(BottlenecksTest, TheNormsRoundTripAndTheUpdateLimitWhereTheyAreLong) {
  PipelineInput input = TwoStagesTied(0);
  input.reports[0].seconds = 7;
  EXPECT_EQ(FindBottlenecks(input, Simulate(input, std::vector<std::string>(4)), 8)[0].kind, Bottleneck::Kind::kNorm);
  input = TwoStagesTied(0);
  input.stages[0].update_s = 30;
  const Simulation simulation = Simulate(input, std::vector<std::string>(4));
  const std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, simulation, 8);
  const auto update = std::find_if(bottlenecks.begin(), bottlenecks.end(),
                                   [](const Bottleneck& bottleneck) { return bottleneck.kind == Bottleneck::Kind::kUpdate; });
  ASSERT_NE(update, bottlenecks.end());
  EXPECT_NEAR(update->gain * simulation.step_s, 3, 1e-9);
}

// Two stages whose messages there and back take most of the step.
PipelineInput TwoStagesApart(double there_s, double back_s, double latency_s) {
  PipelineInput input;
  input.micro_batches = 4;
  input.stages.assign(2, {.forward_s = 0.1, .backward_s = 0.1, .in_flight = 4});
  input.shared_links = 4;
  input.links = {{0, 1, {true, latency_s, {{0, there_s}, {2, there_s}}}, {true, latency_s, {{1, back_s}, {3, back_s}}}}};
  return input;
}

const std::vector<std::string> kDevices = {"a", "b"};

TEST(BottlenecksTest, BothDirectionsOfALinkAreOneBottleneck) {
  const PipelineInput input = TwoStagesApart(2, 2, 0);
  const Simulation simulation = Simulate(input, std::vector<std::string>(4));
  const std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, simulation, 8);
  ASSERT_EQ(bottlenecks[0].kind, Bottleneck::Kind::kLink);
  EXPECT_EQ(NameOf(bottlenecks[0], simulation, kDevices, {}), "a <-> b (activations, gradients)");
  EXPECT_NEAR(bottlenecks[0].busy_ratio, 8 / simulation.step_s, 1e-9);
  EXPECT_NEAR(bottlenecks[0].reverse_busy_ratio, 8 / simulation.step_s, 1e-9);
  EXPECT_EQ(std::count_if(bottlenecks.begin(), bottlenecks.end(),
                          [](const Bottleneck& bottleneck) { return bottleneck.kind == Bottleneck::Kind::kLink; }),
            1);
  // A tenth less on both, by hand.
  const PipelineInput faster = TwoStagesApart(1.8, 1.8, 0);
  EXPECT_NEAR(bottlenecks[0].gain, 1 - PipelineSimulator().Run(faster).step_s / simulation.step_s, 1e-12);
}

TEST(BottlenecksTest, ADirectionThatAloneIsSlowIsNamedAlone) {
  const PipelineInput input = TwoStagesApart(0.01, 3, 0);
  const Simulation simulation = Simulate(input, std::vector<std::string>(4));
  const std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, simulation, 8);
  ASSERT_EQ(bottlenecks[0].kind, Bottleneck::Kind::kLink);
  EXPECT_EQ(NameOf(bottlenecks[0], simulation, kDevices, {}), "b -> a (gradients)");
  EXPECT_EQ(bottlenecks[0].reverse, -1);
}

TEST(BottlenecksTest, BothDirectionsOfALatencyAreOneBottleneck) {
  const PipelineInput input = TwoStagesApart(0.01, 0.01, 5);
  const Simulation simulation = Simulate(input, std::vector<std::string>(4));
  const std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, simulation, 8);
  ASSERT_EQ(bottlenecks[0].kind, Bottleneck::Kind::kLatency);
  EXPECT_EQ(NameOf(bottlenecks[0], simulation, kDevices, {}), "a <-> b (activations, gradients)");
  EXPECT_NEAR(bottlenecks[0].gain * simulation.step_s, 1, 1e-9) << "a tenth of 5 s there and of 5 s back";
}

TEST(BottlenecksTest, BothDirectionsOfASharedLinkAreOneBottleneck) {
  // Stages 0 and 1 at one site, 2 at another: a skip from 0 to 2 shares the link of 1 and 2.
  PipelineInput input;
  input.micro_batches = 4;
  input.stages.assign(3, {.forward_s = 0.1, .backward_s = 0.1, .in_flight = 4});
  input.shared_links = 8;
  input.links = {{0, 1, {true, 0, {{0, 0.01}}}, {true, 0, {{1, 0.01}}}},
                 {1, 2, {true, 0, {{2, 1}, {6, 1}}}, {true, 0, {{3, 1}, {7, 1}}}},
                 {0, 2, {true, 0, {{4, 1}, {6, 1}}}, {true, 0, {{5, 1}, {7, 1}}}}};
  const auto bottlenecks_of = [&](const std::string& there, const std::string& back) {
    const Simulation simulation = Simulate(input, {"", "", "", "", "", "", there, back});
    return std::pair(simulation, FindBottlenecks(input, simulation, 8));
  };
  for (const auto& [there, back, both] : {std::tuple("link:tokyo->paris", "link:paris->tokyo", "link:paris<->tokyo"),
                                          std::tuple("uplink:paris:out", "uplink:paris:in", "uplink:paris")}) {
    const auto [simulation, bottlenecks] = bottlenecks_of(there, back);
    ASSERT_EQ(bottlenecks[0].kind, Bottleneck::Kind::kShared);
    EXPECT_EQ(NameOf(bottlenecks[0], simulation, {"a", "b", "c"}, {}), both);
    EXPECT_FALSE(SamePlace(bottlenecks[0], {.kind = Bottleneck::Kind::kStage}, input, simulation));
    for (const Bottleneck& bottleneck : bottlenecks) {
      if (bottleneck.kind != Bottleneck::Kind::kLink) continue;
      const std::string name = NameOf(bottleneck, simulation, {"a", "b", "c"}, {});
      EXPECT_EQ(SamePlace(bottlenecks[0], bottleneck, input, simulation), !name.starts_with("a <-> b")) << name;
    }
  }
  const auto [simulation, bottlenecks] = bottlenecks_of("line", "other");
  EXPECT_EQ(std::count_if(bottlenecks.begin(), bottlenecks.end(),
                          [](const Bottleneck& bottleneck) { return bottleneck.kind == Bottleneck::Kind::kShared; }),
            2);
  for (const Bottleneck& bottleneck : bottlenecks)
    EXPECT_TRUE(bottleneck.kind != Bottleneck::Kind::kShared || bottleneck.reverse < 0) << "not known to be one line";
}

TEST(BottlenecksTest, TwoLinksThatOneMessageCrossesAreTwoPlaces) {
  PipelineInput input = TwoStagesApart(2, 2, 0);
  const Simulation simulation = Simulate(input, {"", "", "uplink:a:out", "link:b->a"});
  ASSERT_EQ(simulation.shared.size(), 2);
  const Bottleneck uplink{.kind = Bottleneck::Kind::kShared, .index = 0}, line{.kind = Bottleneck::Kind::kShared, .index = 1};
  input.links[0].forward.shared_links.push_back({3, 2});
  EXPECT_FALSE(SamePlace(uplink, line, input, simulation));
}

TEST(BottlenecksTest, NoMoreThanAskedForAreProbedOfAKind) {
  PipelineInput input;
  input.micro_batches = 2;
  input.stages.assign(5, {.forward_s = 0.1, .backward_s = 0.1, .in_flight = 2});
  input.shared_links = 4;
  for (int s = 0; s < 4; ++s) input.links.push_back({s, s + 1, {true, 0, {{s, 1}}}, {}});
  const std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, Simulate(input, std::vector<std::string>(4)), 2);
  EXPECT_EQ(std::count_if(bottlenecks.begin(), bottlenecks.end(),
                          [](const Bottleneck& bottleneck) { return bottleneck.kind == Bottleneck::Kind::kLink; }),
            2);
}

TEST(BottlenecksTest, ALinkSaysWhatPartOfItTiedGradientsAre) {
  // Tied gradients are half of what the line carries: the line limits, not they alone.
  const PipelineInput input = TwoStagesTied(0.4);
  const Simulation simulation = Simulate(input, std::vector<std::string>(4));
  const std::vector<Bottleneck> bottlenecks = FindBottlenecks(input, simulation, 8);
  const auto link = std::find_if(bottlenecks.begin(), bottlenecks.end(),
                                 [](const Bottleneck& bottleneck) { return bottleneck.kind == Bottleneck::Kind::kLink; });
  const auto tied = std::find_if(bottlenecks.begin(), bottlenecks.end(),
                                 [](const Bottleneck& bottleneck) { return bottleneck.kind == Bottleneck::Kind::kTied; });
  ASSERT_TRUE(link != bottlenecks.end() && tied != bottlenecks.end());
  EXPECT_NEAR(link->tied_ratio * simulation.step_s, 0.4, 1e-9);
  EXPECT_NEAR(link->busy_ratio * simulation.step_s, 0.8, 1e-9);
  EXPECT_TRUE(SamePlace(*link, *tied, input, simulation));
}

}  // namespace
}  // namespace fusionllm::scheduler
