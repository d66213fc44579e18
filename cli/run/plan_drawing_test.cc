#include "cli/run/plan_drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cli/run/testing/run_job_fixture.h"
#include "lib/job/parse.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanDrawingTest, DrawsTheGraphOfThePlanAndNoOther) {
  const auto job = job::ParseFusionJob(kJob, "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto graph = workload::BuildForwardGraph(*job, "/");
  ASSERT_TRUE(graph.ok()) << graph.status();
  plan::Plan plan;
  plan.stages.resize(2);
  for (int stage : {0, 1}) plan.stages[stage] = {.index = stage, .devices = {absl::StrCat("device-", stage)}};
  for (size_t op = 0; op < graph->ops().size(); ++op) plan.stages[op < 3 ? 0 : 1].ops.push_back(graph->ops()[op].name);
  plan.micro_batch_size = 3;  // the planner's choice
  EXPECT_THAT(DrawPlanGraph(*job, plan),
              AllOf(HasSubstr("<svg"), HasSubstr("stage 1: device-1"), HasSubstr("micro-batch of 3; b: micro-batch"),
                    HasSubstr("f32[b, 16]"), Not(HasSubstr("f32[1, 16]"))));
  plan.stages[1].ops.pop_back();
  EXPECT_EQ(DrawPlanGraph(*job, plan), "") << "an op without a stage";
  plan.stages[1].ops.push_back("another.model");
  EXPECT_EQ(DrawPlanGraph(*job, plan), "");
}

}  // namespace
}  // namespace fusionllm::cli
