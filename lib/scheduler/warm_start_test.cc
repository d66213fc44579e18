#include "lib/scheduler/warm_start.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::Contains;
using ::testing::Not;

PlanRequest Cities(int devices) {
  PlanRequest request = testing::Transformer({.layers = 40}, 16);
  testing::AddCities(request, 3, devices, 6, int64_t{16} << 30);
  request.search_budget = kQuickSearchBudget;  // of plans from scratch
  return request;
}

PlannedPipeline MustPlan(const absl::StatusOr<PlanOutcome>& outcome) {
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok() || std::holds_alternative<PlanError>(*outcome)) {
    ADD_FAILURE() << (outcome.ok() ? std::get<PlanError>(*outcome).message : "");
    return {};
  }
  return std::get<PlannedPipeline>(*outcome);
}

std::vector<std::string> DevicesOf(const PlannedPipeline& plan) {
  std::vector<std::string> names;
  for (const PlannedStage& stage : plan.stages) names.push_back(stage.device_names[0]);
  return names;
}

int OpsThatMoved(const PlannedPipeline& from, const PlannedPipeline& to) {
  std::vector<std::string> at;
  for (const PlannedStage& stage : from.stages) {
    for (int op : stage.ops) {
      at.resize(std::max(at.size(), static_cast<size_t>(op) + 1));
      at[op] = stage.device_names[0];
    }
  }
  int moved = 0;
  for (const PlannedStage& stage : to.stages) {
    for (int op : stage.ops) moved += at[op] != stage.device_names[0];
  }
  return moved;
}

TEST(WarmStartTest, IsNoSlowerThanThePlanThatGoesOn) {
  const PlanRequest request = Cities(64);
  const PlannedPipeline before = MustPlan(MakePlan("op-fence", request));
  const PlannedPipeline near = MustPlan(PlanFromWarmStart(request, StagesOf(before)));
  EXPECT_LE(near.predicted_step_s, before.predicted_step_s);
  EXPECT_EQ(near, MustPlan(PlanFromWarmStart(request, StagesOf(before)))) << "the same each time";
  EXPECT_LT(near.evaluations, 60) << "a warm start that simulates as much as a search";
}

TEST(WarmStartTest, GoesOnWithoutALostDevice) {
  PlanRequest request = Cities(64);
  const PlannedPipeline before = MustPlan(MakePlan("op-fence", request));
  for (const size_t lost : {size_t{0}, before.stages.size() / 2, before.stages.size() - 1}) {
    PlanRequest now = request;
    now.exclude = {before.stages[lost].device_names[0]};
    const PlannedPipeline near = MustPlan(PlanFromWarmStart(now, StagesOf(before)));
    EXPECT_THAT(DevicesOf(near), Not(Contains(now.exclude[0])));
    EXPECT_LE(near.predicted_step_s, 1.1 * MustPlan(MakePlan("op-fence", now)).predicted_step_s) << "stage " << lost;
  }
}

TEST(WarmStartTest, TakesWorkOffADeviceThatLags) {
  PlanRequest request = Cities(64);
  const PlannedPipeline before = MustPlan(MakePlan("op-fence", request));
  const int laggard = before.stages[before.stages.size() / 2].devices[0];
  request.devices[laggard].time_scale *= 3;
  const PlannedPipeline near = MustPlan(PlanFromWarmStart(request, StagesOf(before)));
  EXPECT_LE(near.predicted_step_s, 1.1 * MustPlan(MakePlan("op-fence", request)).predicted_step_s);
  EXPECT_LT(OpsThatMoved(before, near), static_cast<int>(request.ops.size()));
}

TEST(WarmStartTest, UsesAMuchFasterDeviceThatJoined) {
  PlanRequest request = Cities(12);
  const PlannedPipeline before = MustPlan(MakePlan("op-fence", request));
  request.devices.push_back({.name = "fast",
                             .site = before.stages[0].devices.empty() ? "" : request.devices[before.stages[0].devices[0]].site,
                             .time_scale = 0.05,
                             .memory_bytes = int64_t{64} << 30});
  const PlannedPipeline near = MustPlan(PlanFromWarmStart(request, StagesOf(before)));
  EXPECT_THAT(DevicesOf(near), Contains("fast"));
  EXPECT_LT(near.predicted_step_s, before.predicted_step_s);
}

TEST(WarmStartTest, PlansFromScratchWhereNothingNearIsLeft) {
  const PlanRequest request = Cities(12);
  const PlannedPipeline fresh = MustPlan(MakePlan("op-fence", request));
  EXPECT_EQ(MustPlan(PlanFromWarmStart(request, {{"gone-0", {"embedding"}}, {"gone-1", {"loss"}}})), fresh);
  EXPECT_EQ(MustPlan(PlanFromWarmStart(request, {})), fresh);
}

TEST(WarmStartTest, HonoursPinsAndRefusesWhatCannotBe) {
  PlanRequest request = Cities(12);
  const PlannedPipeline before = MustPlan(MakePlan("op-fence", request));
  request.pins = {{"loss", before.stages.front().device_names[0]}};
  const PlannedPipeline near = MustPlan(PlanFromWarmStart(request, StagesOf(before)));
  EXPECT_EQ(near.stages.back().device_names[0], before.stages.front().device_names[0]);
  for (Device& device : request.devices) device.memory_bytes = 1'000'000;
  const auto outcome = PlanFromWarmStart(request, StagesOf(before));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(std::get<PlanError>(*outcome).shortfall.what, "memory_bytes");
}

}  // namespace
}  // namespace fusionllm::scheduler
