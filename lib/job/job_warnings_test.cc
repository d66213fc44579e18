#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/job/warnings.h"

namespace fusionllm::job {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JobWarningsTest, AWarmUpThatNeverEndsIsTold) {
  FusionJob job;
  job.spec.training.steps = 20;
  job.spec.training.schedule.warmup_steps = 20;
  EXPECT_THAT(Warnings(job), IsEmpty());
  job.spec.training.steps = 19;
  EXPECT_THAT(Warnings(job), ElementsAre(AllOf(HasSubstr("spec.training.schedule.warmupSteps: "), HasSubstr("warm-up of 20 steps"),
                                               HasSubstr("run of 19"))));
}

TEST(JobWarningsTest, NoStepsAndNoCheckpointWriteNothing) {
  FusionJob job;
  job.spec.training.steps = 0;
  job.spec.training.schedule.warmup_steps = 20;
  EXPECT_THAT(Warnings(job), ElementsAre(AllOf(HasSubstr("spec.training.steps: 0"), HasSubstr("no checkpoints"))));
  job.spec.checkpoint.emplace();
  EXPECT_THAT(Warnings(job), IsEmpty());
}

TEST(JobWarningsTest, AnExcludedDeviceThatTheTopologyDoesNotHaveIsTold) {
  FusionJob job;
  job.spec.strategy.exclude = {"a", "lab-3"};
  Topology topology;
  topology.metadata.name = "pair";
  topology.spec.sites = {{.name = "here", .devices = {{.name = "a"}}}};
  EXPECT_THAT(Warnings(job, topology), ElementsAre("spec.strategy.exclude: topology pair has no device 'lab-3'"));
}

}  // namespace
}  // namespace fusionllm::job
