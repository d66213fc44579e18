#include "lib/report/slow_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A step of 0.42 s was planned. Stage 0 was to work 0.4 s of it, stage 1 0.2 s; messages between them 0.1 s.
Run Planned(double median_step_s) {
  Run run;
  for (int64_t step = 1; step <= 10; ++step) run.steps.push_back({.step = step, .seconds = median_step_s});
  run.steps_made = 10;
  run.plan = plan::Plan{.predicted_step_seconds = 0.42};
  run.plan->stages = {{.index = 0, .devices = {"a"}, .compute_seconds = 0.3, .codec_seconds = 0.06, .update_seconds = 0.04},
                      {.index = 1, .devices = {"b"}, .compute_seconds = 0.2}};
  run.plan->links = {{.src = "a", .dst = "b", .bytes = 10'000, .seconds = 0.1}};
  run.summary = Summary{.steps = 10, .median_step_s = median_step_s, .predicted_step_s = 0.42};
  run.summary->stages = {{.index = 0, .device = "a", .busy_ratio = 0.4 / median_step_s},
                         {.index = 1, .device = "b", .busy_ratio = 0.2 / median_step_s}};
  run.summary->links = {{.src = "a", .dst = "b", .bytes_per_s = 100'000}};
  return run;
}

TEST(SlowStepTest, StepsThatTookAsLongAsPlannedNeedNoReason) {
  report::Run run = Planned(0.52);
  run.machine_was_busy = true;
  run.processors = base::CpuUsage{.others = 1.6, .cores = 2};
  EXPECT_EQ(SlowStepSentence(run), "");
  EXPECT_EQ(SlowStepSentence(Planned(0.2)), "");
  run = Planned(1.3);
  run.plan.reset();
  EXPECT_EQ(SlowStepSentence(run), "");
}

TEST(SlowStepTest, AStageThatWorkedLongerIsNamedWithTheMachinesLoad) {
  report::Run run = Planned(1.302);
  run.summary->stages[0].busy_ratio = 0.9;
  run.machine_was_busy = true;
  run.processors = base::CpuUsage{.others = 1.6, .cores = 2};
  EXPECT_EQ(
      SlowStepSentence(run),
      "a step took 3.1x the predicted 0.42s: stage 0 on a worked 2.9x as long as planned; other programs used 1.6 of this machine's 2 "
      "cores");
  run.machine_was_busy = false;
  EXPECT_THAT(SlowStepSentence(run), Not(HasSubstr("other programs")));
}

TEST(SlowStepTest, AnEmulatedDeviceThatWaitedForAProcessorSaysSo) {
  report::Run run = Planned(1.0);
  run.summary->stages[1] = {.index = 1, .device = "b", .busy_ratio = 0.8, .lateness_s = 6};
  EXPECT_EQ(SlowStepSentence(run),
            "a step took 2.4x the predicted 0.42s: stage 1 on b worked 4.0x as long as planned, 75% of it waiting for a processor of this "
            "machine");
}

TEST(SlowStepTest, MessagesThatTookLongerAreNamed) {
  report::Run run = Planned(0.84);
  run.summary->links[0].bytes_per_s = 20'000;
  EXPECT_EQ(SlowStepSentence(run), "a step took 2.0x the predicted 0.42s: messages a > b took 5.0x as long as planned");
  run.summary->links[0].bytes_per_s = 0;  // not measured
  EXPECT_THAT(SlowStepSentence(run), HasSubstr(": no stage or link alone says why"));
}

}  // namespace
}  // namespace fusionllm::report
