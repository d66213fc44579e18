// Plans for more devices than a dynamic program over all of them could serve.
#include <algorithm>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/closed_form.h"
#include "lib/scheduler/greedy_packing.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/problems.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::Each;
using ::testing::Ge;
using testing::ProblemOf;

// Sites of eight devices of three speeds; a quarter of the sites far away.
PlanRequest Sites(int ops, int devices) {
  PlanRequest request = testing::Chain({.ops = ops, .op_s = 0.002, .cut_bytes = 400'000}, 16);
  for (int d = 0; d < devices; ++d) testing::AddDevice(request, "site" + std::to_string(d / 8), 1 + d % 3);
  testing::JoinSites(request, 125e6, 1e-3, 2.5e6, 0.04);
  return request;
}

PlannedPipeline OpFencePlan(const PlanRequest& request) {
  const auto outcome = MakePlan("op-fence", request);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok() || std::holds_alternative<PlanError>(*outcome)) {
    ADD_FAILURE() << (outcome.ok() ? std::get<PlanError>(*outcome).message : "");
    return {};
  }
  return std::get<PlannedPipeline>(*outcome);
}

void ExpectSoundPlan(const PlanRequest& request, const PlannedPipeline& plan) {
  std::vector<int> stage_of(request.ops.size(), -1), used;
  for (const PlannedStage& stage : plan.stages) {
    used.push_back(stage.devices[0]);
    EXPECT_LE(stage.memory_bytes, request.devices[stage.devices[0]].memory_bytes);
    for (int op : stage.ops) {
      EXPECT_EQ(stage_of[op], -1);
      stage_of[op] = stage.index;
    }
  }
  EXPECT_THAT(stage_of, Each(Ge(0)));
  std::sort(used.begin(), used.end());
  EXPECT_EQ(std::adjacent_find(used.begin(), used.end()), used.end()) << "a device runs two stages";
  EXPECT_EQ(plan.stages.size() + plan.left_out.size(), request.devices.size());
  EXPECT_GE(plan.gap, 0);
}

TEST(LargePlanTest, ManyDevicesArePlannedSoundlyAndAlikeEachTime) {
  PlanRequest request = Sites(600, 400);
  request.search_budget = 2'000;
  const PlannedPipeline plan = OpFencePlan(request);
  ExpectSoundPlan(request, plan);
  EXPECT_EQ(plan, OpFencePlan(request));
  EXPECT_GT(plan.stages.size(), 1u);
  EXPECT_LT(plan.stages.size(), 100u) << "crossings would cost more than so many devices give";
}

// One who plans on a part of the devices cannot win by more than a little.
TEST(LargePlanTest, MoreDevicesDoNotMakeThePlanMuchWorse) {
  PlanRequest few = Sites(600, 48), many = Sites(600, 800);
  EXPECT_LE(OpFencePlan(many).predicted_step_s, 1.05 * OpFencePlan(few).predicted_step_s);
}

TEST(LargePlanTest, MemoryThatForcesManyStagesGetsThem) {
  PlanRequest request = Sites(1'000, 1'000);
  for (OpNode& op : request.ops) op.parameter_bytes = 1'000'000;
  for (Device& device : request.devices) device.memory_bytes = 20'000'000;
  request.search_budget = 500;
  const PlannedPipeline plan = OpFencePlan(request);
  ExpectSoundPlan(request, plan);
  EXPECT_GE(plan.stages.size(), 200u) << "each device holds no more than five ops";
}

TEST(LargePlanTest, WhatNoMemoryHoldsIsRefused) {
  PlanRequest request = Sites(1'000, 200);
  for (OpNode& op : request.ops) op.parameter_bytes = 1'000'000;
  for (Device& device : request.devices) device.memory_bytes = 8'000'000;
  const auto outcome = MakePlan("op-fence", request);
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(std::holds_alternative<PlanError>(*outcome));
  EXPECT_EQ(std::get<PlanError>(*outcome).reason, "InsufficientMemory");
}

TEST(LargePlanTest, StagesPinsAndAllDevicesAsTheJobWants) {
  PlanRequest request = Sites(600, 200);
  request.search_budget = 500;
  request.stages = 120;
  EXPECT_EQ(OpFencePlan(request).stages.size(), 120u);
  request.stages = 0;
  request.use_all_devices = true;
  const PlannedPipeline all = OpFencePlan(request);
  ExpectSoundPlan(request, all);
  EXPECT_EQ(all.stages.size(), 200u);
  request.use_all_devices = false;
  request.first_device = "site7-3";
  request.pins = {{"op300", "site9-0"}, {"loss", "site2-2"}};
  const PlannedPipeline pinned = OpFencePlan(request);
  ExpectSoundPlan(request, pinned);
  EXPECT_EQ(pinned.stages.front().device_names[0], "site7-3");
  EXPECT_EQ(pinned.stages.back().device_names[0], "site2-2");
  const auto holder =
      std::find_if(pinned.stages.begin(), pinned.stages.end(), [](const PlannedStage& s) { return s.device_names[0] == "site9-0"; });
  ASSERT_NE(holder, pinned.stages.end());
  EXPECT_THAT(holder->op_names, ::testing::Contains("op300"));
}

TEST(LargePlanTest, DevicesThatOnlyPairsJoinAreFound) {
  // A ring: each talks to the next alone.
  PlanRequest request = testing::Chain({.ops = 400, .op_s = 0.01, .cut_bytes = 1'000}, 64);
  constexpr int kRing = 1'500;  // more kinds than a table holds
  for (int d = 0; d < kRing; ++d) {
    testing::AddDevice(request, "", 1);
    for (int to : {(d + 1) % kRing, (d + kRing - 1) % kRing}) {
      request.links.push_back({.src = d, .dst = to, .latency_s = 1e-4, .bytes_per_s = 1e8});
    }
  }
  request.search_budget = 1'000;
  const PlannedPipeline short_one = OpFencePlan(request);
  ExpectSoundPlan(request, short_one);
  EXPECT_LE(short_one.stages.size(), 2u) << "the labels go from the first stage to the last, so these must be neighbours";
  ASSERT_EQ(request.values.back().name, "labels");
  request.values.pop_back();
  const PlannedPipeline plan = OpFencePlan(request);
  ExpectSoundPlan(request, plan);
  EXPECT_GT(plan.stages.size(), 10u);
}

TEST(EgressTest, NoSiteSendsMoreThanTheJobAllows) {
  PlanRequest request = testing::Chain({.ops = 24, .op_s = 0.05, .cut_bytes = 400'000}, 8);
  for (int d = 0; d < 6; ++d) testing::AddDevice(request, d % 2 == 0 ? "paris" : "tokyo", 1);
  testing::JoinSites(request, 125e6, 1e-3, 25e6, 0.01);
  const PlannedPipeline free_plan = OpFencePlan(request);
  int64_t most = 0;
  for (const auto& [site, bytes] : testing::EgressOf(request, free_plan)) most = std::max(most, bytes);
  ASSERT_GT(most, 3'000'000) << "the best plan crosses between the sites";
  request.max_egress_bytes = 3'300'000;  // of one crossing: eight messages of 400 kB
  const PlannedPipeline once = OpFencePlan(request);
  for (const auto& [site, bytes] : testing::EgressOf(request, once)) EXPECT_LE(bytes, 3'300'000) << site;
  request.max_egress_bytes = 0;
  const PlannedPipeline inside = OpFencePlan(request);
  EXPECT_TRUE(testing::EgressOf(request, inside).empty());
  EXPECT_GT(inside.stages.size(), 1u);
  EXPECT_GE(inside.predicted_step_s, free_plan.predicted_step_s);
}

TEST(EgressTest, ManyDevicesKeepToOneSiteWhereNothingMayLeave) {
  PlanRequest request = Sites(300, 200);
  request.max_egress_bytes = 0;
  const PlannedPipeline plan = OpFencePlan(request);
  ExpectSoundPlan(request, plan);
  EXPECT_TRUE(testing::EgressOf(request, plan).empty());
  EXPECT_GT(plan.stages.size(), 1u);
}

TEST(EgressTest, TheRefusalNamesTheSiteAndTheBytes) {
  PlanRequest request = testing::Chain({.ops = 24, .op_s = 0.05, .cut_bytes = 400'000}, 8);
  for (const char* site : {"paris", "tokyo"}) testing::AddDevice(request, site, 1);
  testing::JoinSites(request, 125e6, 1e-3, 25e6, 0.01);
  request.max_egress_bytes = 1'000'000;
  request.stages = 2;
  for (const char* planner : {"op-fence", "equal-ops", "exact"}) {
    const auto outcome = MakePlan(planner, request);
    ASSERT_TRUE(outcome.ok() && std::holds_alternative<PlanError>(*outcome)) << planner;
    const PlanError& refusal = std::get<PlanError>(*outcome);
    EXPECT_EQ(refusal.reason, "EgressLimitExceeded");
    EXPECT_THAT(refusal.message, ::testing::HasSubstr("site paris would send 3.1 MiB"));
    EXPECT_EQ(refusal.shortfall.what, "egress_bytes");
    EXPECT_EQ(refusal.shortfall.available, 1e6);
  }
  request.max_egress_bytes = -1;
  EXPECT_EQ(MakePlan("op-fence", request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(GreedyPackingTest, GivesEachDeviceWhatItsSpeedIsWorth) {
  PlanRequest request = testing::Chain({.ops = 90, .op_s = 0.01, .cut_bytes = 1'000}, 256);
  for (double scale : {1.0, 2.0, 1.0, 3.0}) testing::AddDevice(request, "lab", scale);
  testing::JoinSites(request, 1e9, 1e-6, 1e9, 1e-6);
  const auto problem = ProblemOf(request);
  const std::vector<EstimatedPlan> plans = GreedyPacking(*problem).Plans(4, 1'000'000);
  ASSERT_FALSE(plans.empty());
  EXPECT_EQ(plans[0].assignment.devices.size(), 4u);
  // 90 ops of 0.03 s at speeds 1 + 1/2 + 1 + 1/3: the slowest stage has at least 0.953 s a micro-batch.
  EXPECT_LE(plans[0].estimate_s, 1.06 * 255 * 0.953);
}

TEST(GreedyPackingTest, RecutsNoWorseThanEqualParts) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    const PlanRequest request = testing::RandomRequest(seed, {.max_ops = 40, .max_devices = 6, .tight_memory = false});
    const auto problem = ProblemOf(request);
    const int stages = problem->max_stages();
    Assignment equal{.devices = {problem->usable().begin(), problem->usable().begin() + stages}};
    for (int s = 0; s < stages; ++s) {
      equal.begins.push_back(s == 0 ? 0 : problem->first_cut() - 1 + (problem->positions() - problem->first_cut() + 1) * s / stages);
    }
    const auto recut = GreedyPacking(*problem).Recut(equal.devices);
    ASSERT_TRUE(recut.has_value()) << seed;
    EXPECT_LE(recut->estimate_s, 1.001 * ClosedForm(*problem).StepSeconds(equal)) << seed;
  }
}

// What the long search of some dozen devices is for: were its chains of anneals to lose what they find, it would end near the short one.
TEST(RefinementTest, TheFullSearchFindsMuchBetterPlansThanTheQuickOne) {
  double ratio = 1;
  for (const uint64_t number : {1, 3, 5}) {
    PlanRequest request = testing::Transformer({.layers = 50}, 32);
    testing::AddCities(request, number, 48, 16, int64_t{16} << 30);
    request.search_budget = kQuickSearchBudget;
    const double quick_s = std::get<PlannedPipeline>(*MakePlan("op-fence", request)).predicted_step_s;
    request.search_budget = kFullSearchBudget;
    const double full_s = std::get<PlannedPipeline>(*MakePlan("op-fence", request)).predicted_step_s;
    EXPECT_LE(full_s, quick_s) << number;
    ratio *= full_s / quick_s;
  }
  EXPECT_LT(ratio, 0.94) << "two percent each";
}

}  // namespace
}  // namespace fusionllm::scheduler
