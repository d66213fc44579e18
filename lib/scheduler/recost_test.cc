#include "lib/scheduler/recost.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler {
namespace {

using ::testing::HasSubstr;

// Four devices at two sites that must all be used, so that a slow link is crossed.
PlanRequest SitesOfTwo(int64_t cut_bytes = 400'000) {
  PlanRequest request = testing::Chain({.ops = 12, .op_s = 0.01, .cut_bytes = cut_bytes}, 8);
  for (const char* site : {"paris", "paris", "tokyo", "tokyo"}) testing::AddDevice(request, site, 1);
  testing::LinkSites(request, 125e6, 1e-3, 2.5e6, 0.02);
  request.stages = 4;
  return request;
}

PlannedPipeline PlanOf(const PlanRequest& request, absl::string_view planner = "op-fence") {
  const auto outcome = MakePlan(planner, request);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok() || !std::holds_alternative<PlannedPipeline>(*outcome)) return {};
  return std::get<PlannedPipeline>(*outcome);
}

TEST(RecostTest, TheSameSnapshotGivesTheSameBitsOfTheStep) {
  const CodecLevelPolicy ladder({{.name = "fp32"}, {.name = "fp16", .forward_ratio = 2, .backward_ratio = 2, .loss_cost = 1e-4}});
  int refitted = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    PlanRequest request = testing::RandomRequest(seed, {.max_ops = 14, .max_devices = 5});
    if (seed % 3 == 0) request.codec_policy = &ladder;
    if (seed % 4 == 0) request.schedule = schedule::kGPipe;
    for (const char* planner : {"op-fence", "equal-ops"}) {
      const auto outcome = MakePlan(planner, request);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      if (!std::holds_alternative<PlannedPipeline>(*outcome)) continue;
      const PlannedPipeline& plan = std::get<PlannedPipeline>(*outcome);
      EXPECT_EQ(PipelineSimulator().Run(plan.pipeline.input).step_s, plan.predicted_step_s);
      const auto again = RecostPlan(request, plan, RecostMode::kCodecsAndDepths);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_EQ(again->predicted_step_s, plan.predicted_step_s);
      EXPECT_EQ(again->pipeline, plan.pipeline);
      const auto restaged = RecostPlan(request, plan, RecostMode::kStagesOnly);
      ASSERT_TRUE(restaged.ok()) << restaged.status();
      EXPECT_EQ(restaged->predicted_step_s, plan.predicted_step_s);
      ++refitted;
    }
  }
  EXPECT_GT(refitted, 60);
}

TEST(RecostTest, SlowerLinksAndDevicesMakeTheSamePlanSlower) {
  const PlanRequest request = SitesOfTwo();
  const PlannedPipeline plan = PlanOf(request);
  ASSERT_EQ(plan.stages.size(), 4);
  PlanRequest slow_link = request;
  for (SharedResource& resource : slow_link.resources) resource.bytes_per_s /= 10;
  for (Link& link : slow_link.links) link.bytes_per_s /= 10;
  const auto on_slow_link = RecostPlan(slow_link, plan, RecostMode::kCodecsAndDepths);
  ASSERT_TRUE(on_slow_link.ok()) << on_slow_link.status();
  EXPECT_GT(on_slow_link->predicted_step_s, 1.5 * plan.predicted_step_s);
  PlanRequest lagging = request;
  lagging.devices[plan.stages[2].devices[0]].time_scale = 3;
  const auto with_lagging = RecostPlan(lagging, plan, RecostMode::kCodecsAndDepths);
  ASSERT_TRUE(with_lagging.ok()) << with_lagging.status();
  EXPECT_NEAR(with_lagging->stages[2].forward_s, 3 * plan.stages[2].forward_s, 1e-12);
  EXPECT_EQ(with_lagging->stages[2].op_names, plan.stages[2].op_names);
  EXPECT_GT(with_lagging->predicted_step_s, plan.predicted_step_s);
}

TEST(RecostTest, AKeptCodecStaysWhereAnotherWouldBeChosen) {
  const CodecLevelPolicy ladder({{.name = "fp32"}, {.name = "topk", .forward_ratio = 100, .backward_ratio = 100, .loss_cost = 1e-6}});
  PlanRequest request = SitesOfTwo(4'000'000);
  request.codec_policy = &ladder;
  const PlannedPipeline plan = PlanOf(request);
  ASSERT_THAT(plan.links, ::testing::Contains(::testing::Field(&PlannedLink::codec, "topk")));
  request.codec_policy = nullptr;  // exact
  const auto kept = RecostPlan(request, plan, RecostMode::kCodecsAndDepths), restaged = RecostPlan(request, plan, RecostMode::kStagesOnly);
  ASSERT_TRUE(kept.ok() && restaged.ok());
  EXPECT_EQ(kept->predicted_step_s, plan.predicted_step_s);
  EXPECT_THAT(restaged->links, ::testing::Each(::testing::Field(&PlannedLink::codec, "fp32")));
  EXPECT_GT(restaged->predicted_step_s, plan.predicted_step_s);
}

TEST(RecostTest, ReportsWhyStagesCannotRun) {
  const PlanRequest request = SitesOfTwo();
  const PlannedPipeline plan = PlanOf(request);
  const std::string device = plan.stages[1].device_names[0];
  PlanRequest without = request;
  without.exclude = {device};
  EXPECT_THAT(RecostPlan(without, plan, RecostMode::kCodecsAndDepths).status().message(), HasSubstr("stage 1 runs on " + device));
  PlanRequest cut = request;
  std::erase_if(cut.links,
                [&](const Link& link) { return link.src == plan.stages[0].devices[0] && link.dst == plan.stages[1].devices[0]; });
  EXPECT_THAT(RecostPlan(cut, plan, RecostMode::kStagesOnly).status().message(), HasSubstr("not joined"));
  PlanRequest small = request;
  small.devices[plan.stages[3].devices[0]].memory_bytes = 1000;
  EXPECT_THAT(RecostPlan(small, plan, RecostMode::kStagesOnly).status().message(), HasSubstr("stage 3 needs"));
  PlanRequest other_job = testing::Chain({.ops = 20}, 8);
  other_job.devices = request.devices;
  other_job.links = request.links;
  other_job.resources = request.resources;
  EXPECT_EQ(RecostPlan(other_job, plan, RecostMode::kStagesOnly).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace fusionllm::scheduler
