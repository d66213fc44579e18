// The page of one run: what a reader looks for is there, with the values of the record.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/report/curves.h"
#include "lib/report/overview.h"
#include "lib/report/report.h"

namespace fusionllm::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Sixty steps on one device.
report::Run OneDevice() {
  report::Run run;
  run.job = run.title = "small";
  run.outcome = "done after step 60";
  run.total_steps = 60;
  run.targets_per_step = 512;
  run.parameters = 107'520;
  run.started = "2026-11-27T17:40:12Z";
  run.elapsed_s = 130;
  run.job_text = "metadata: {name: small}  # <1>\n";
  for (int step = 1; step <= 60; ++step) {
    run.steps.push_back({.step = step,
                         .loss = 2 + 3 * std::exp(-step / 15.0) + (step % 2 == 0 ? 0.05 : -0.05),
                         .gradient_norm = 1.0 / step,
                         .learning_rate = 1e-4 * std::min(step, 10),
                         .seconds = 0.5,
                         .tokens_per_second = 1024});
  }
  run.steps_made = 60;
  run.plan = plan::Plan{.strategy = "op-fence", .predicted_step_seconds = 0.48, .micro_batches = 4};
  run.plan->stages = {{.index = 0, .devices = {"local-0"}, .ops = {"wte", "head"}, .compute_seconds = 0.45, .memory_bytes = 5 << 20}};
  run.plans = 1;
  run.summary = Summary{.steps = 60, .final_loss = run.steps.back().loss, .median_step_s = 0.5, .predicted_step_s = 0.48};
  run.summary->stages = {
      {.index = 0, .device = "local-0", .busy_ratio = 0.9, .peak_memory_bytes = 4 << 20, .predicted_memory_bytes = 5 << 20}};
  return run;
}

std::string PageOf(const report::Run& run) { return ToHtml({run.title, "", {}, {run}}); }

TEST(RunPageTest, SaysWhenItWasHowLongItTookAndWhatWasTrained) {
  report::Run run = OneDevice();
  EXPECT_THAT(PageOf(run), HasSubstr("Started <time datetime=\"2026-11-27T17:40:12Z\">2026-11-27 17:40:12 UTC</time>; took 2m10s from "
                                     "start to end; 107,520 parameters are trained."));
  run.earlier_steps = 20;
  EXPECT_THAT(PageOf(run), HasSubstr("goes on behind 20 steps of earlier starts in this folder"));
}

TEST(RunPageTest, TilesHaveAMeanLossAndTheNewestValidation) {
  report::Run run = OneDevice();
  EXPECT_THAT(Tiles(run), AllOf(HasSubstr("<b>60</b><span>steps"), HasSubstr("training loss, mean of the last 12 steps"),
                                HasSubstr("<b>30 s</b><span>of training, 60 steps"), Not(HasSubstr("validation"))));
  run.evaluations = {{30, 2.5, 0.25}, {60, 2.25, 0.314}};
  EXPECT_THAT(Tiles(run), AllOf(HasSubstr("<b>2.2500</b><span>validation loss after step 60"), HasSubstr("<b>31.4%</b><span>accuracy")));
  run.total_steps = 100;
  EXPECT_THAT(Tiles(run), HasSubstr("<b>60 of 100</b><span>steps"));
}

TEST(RunPageTest, FiguresStandBesideWhatThePlanPredicted) {
  const std::string table = FiguresTable(OneDevice());
  EXPECT_THAT(table, AllOf(HasSubstr("<b>step time</b></td><td>0.50s</td><td>0.48s</td>"), HasSubstr("measured is +4.2%"),
                           HasSubstr("<b>tokens/s</b></td><td>1,024</td><td>1,067</td>"), HasSubstr("<b>memory</b></td><td>4.00 MiB")));
}

TEST(RunPageTest, TheLegendTellsLossMeanAndValidationApart) {
  report::Run run = OneDevice();
  EXPECT_THAT(LossCurves({run}),
              AllOf(HasSubstr("faint\"></i>training loss of each step"), HasSubstr("</i>mean of 12 steps"), Not(HasSubstr("validation"))));
  run.evaluations = {{30, 2.5, {}}, {60, 2.25, {}}};
  const std::string curves = LossCurves({run});
  EXPECT_THAT(curves, AllOf(HasSubstr("<i class=\"ring st1\"></i>validation loss"), HasSubstr("<title>validation loss: 2.25</title>"),
                            HasSubstr("[30,2.5],[60,2.25]")));
  EXPECT_THAT(curves, HasSubstr("[15,2.5],[30,2.25]")) << "by the seconds of training";
  EXPECT_THAT(LossCurves({run, run}), HasSubstr("rings: validation loss"));
  run.steps.resize(3);
  EXPECT_THAT(LossCurves({run}), Not(HasSubstr("mean of"))) << "too few";
}

TEST(RunPageTest, TheTimeToALossStandsBelowTheCurveByTime) {
  const report::Run run = OneDevice();
  const std::string one = LossCurves({run});
  EXPECT_LT(one.find("Loss by time"), one.find("Time to a loss"));
  EXPECT_THAT(one, AllOf(HasSubstr("the mean of 12 steps"), HasSubstr(">step</th>")));
  report::Run twice = run;
  twice.title = "twice as fast";
  for (StepPoint& point : twice.steps) point.seconds = 0.25;
  EXPECT_THAT(LossCurves({run, twice}), AllOf(HasSubstr("twice as fast</th>"), HasSubstr("(step ")));
}

TEST(RunPageTest, TimeIsCountedInWhatKeepsItsLabelsShort) {
  report::Run run = OneDevice();
  EXPECT_THAT(LossCurves({run}), HasSubstr("seconds of training"));
  for (StepPoint& point : run.steps) point.seconds = 20;
  EXPECT_THAT(LossCurves({run}), AllOf(HasSubstr("minutes of training"), HasSubstr("[20,")));
  for (StepPoint& point : run.steps) point.seconds = 1200;
  EXPECT_THAT(LossCurves({run, run}), AllOf(HasSubstr("hours of training"), HasSubstr("[20,")));
}

TEST(RunPageTest, HasLearningRateAndGradientNorm) {
  const std::string curves = TrainingCurves(OneDevice());
  EXPECT_THAT(curves,
              AllOf(HasSubstr("id=\"learning-rate\""), HasSubstr("[10,0.001]"), HasSubstr("id=\"gradient-norm\""), HasSubstr("[2,0.5]")));
  EXPECT_EQ(TrainingCurves(report::Run{}), "");
}

TEST(RunPageTest, NamesCheckpointsAndHasTheJob) {
  report::Run run = OneDevice();
  EXPECT_THAT(PageOf(run), AllOf(Not(HasSubstr("<h3>Checkpoints")), HasSubstr("<pre>metadata: {name: small}  # &lt;1&gt;\n</pre>")));
  run.checkpoints = {{20, "kept/step-000020"}, {40, "kept/step-000040"}};
  EXPECT_THAT(PageOf(run), HasSubstr("Saved after steps 20, 40. The newest is <code>kept/step-000040</code>"));
  for (int step = 41; step < 100; ++step) run.checkpoints.push_back({step, "x"});
  EXPECT_THAT(PageOf(run), AllOf(HasSubstr("Saved after steps ..., 80, 81,"), Not(HasSubstr(", 79,"))));
}

TEST(RunPageTest, SaysNothingOfWhatThereIsNot) {
  const std::string page = PageOf(OneDevice());
  EXPECT_THAT(page, AllOf(Not(HasSubstr("validation")), Not(HasSubstr("compression")), Not(HasSubstr("between sites")),
                          Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST(RunPageTest, TheSameRecordMakesTheSamePage) { EXPECT_EQ(PageOf(OneDevice()), PageOf(OneDevice())); }

TEST(RunPageTest, APageStaysSmallHoweverLongTheRun) {
  report::Run run = OneDevice();
  for (int step = 61; step <= 200'000; ++step) run.steps.push_back({.step = step, .loss = 2 + 1.0 / step, .seconds = 0.5});
  EXPECT_LT(PageOf(run).size(), 600'000u);
}

}  // namespace
}  // namespace fusionllm::report
