#include "lib/report/loss_figures.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace fusionllm::report {
namespace {

// Falls from about 5 to 2 with a time constant of so many steps, each of which takes `seconds`.
report::Run FallingRun(int64_t steps, double constant, double seconds) {
  report::Run run;
  for (int64_t step = 1; step <= steps; ++step) {
    const double noise = 0.05 * (step % 2 == 0 ? 1 : -1);
    run.steps.push_back({.step = step, .loss = 2 + 3 * std::exp(-static_cast<double>(step) / constant) + noise, .seconds = seconds});
  }
  return run;
}

TEST(MeanLossTest, IsThatOfAFifthOfTheStepsAndOfTwentyAtMost) {
  EXPECT_EQ(MeanSteps(FallingRun(4, 10, 1)), 1);
  EXPECT_EQ(MeanSteps(FallingRun(60, 10, 1)), 12);
  EXPECT_EQ(MeanSteps(FallingRun(5000, 10, 1)), kMaxMeanSteps);
  EXPECT_EQ(MeanOfLastSteps(report::Run{}), std::nullopt);
  report::Run run;
  for (int64_t step = 1; step <= 10; ++step) run.steps.push_back({.step = step, .loss = static_cast<double>(step)});
  EXPECT_EQ(MeanOfLastSteps(run), 9.5) << "of the last two";
  run.steps.back().loss = NAN;
  EXPECT_TRUE(std::isnan(*MeanOfLastSteps(run)));
}

TEST(MeanLossTest, StepsWithoutATargetThatCountsArePassedOver) {
  report::Run run;
  for (int64_t step = 1; step <= 15; ++step) run.steps.push_back({.step = step, .loss = static_cast<double>(step), .targets = 8});
  run.steps[13] = {.step = 14, .loss = NAN, .targets = 0, .ignored_targets = 8};
  EXPECT_EQ(MeanOfLastSteps(run), 14) << "of steps 13 and 15";
  EXPECT_EQ(SmoothedLoss(run, 3).back().loss, 14);
  for (report::StepPoint& step : run.steps) step = run.steps[13];
  EXPECT_TRUE(std::isnan(*MeanOfLastSteps(run)));
  EXPECT_TRUE(SmoothedLoss(run, 3).empty());
}

TEST(BestEvaluationTest, IsTheEarliestOfTheLowestThatAreNumbers) {
  report::Run run;
  EXPECT_EQ(BestEvaluation(run), nullptr);
  run.evaluations = {{10, NAN, {}}, {20, 3.0, {}}, {30, 2.5, {}}, {40, 2.5, {}}, {50, 2.6, {}}};
  EXPECT_EQ(BestEvaluation(run)->step, 30);
}

TEST(TrainingSecondsTest, AreThoseOfThisStart) {
  report::Run run = FallingRun(10, 5, 2);
  run.earlier_steps = 4;
  run.steps.back().seconds = NAN;
  EXPECT_EQ(TrainingSeconds(run), 10);
}

TEST(SmoothedLossTest, HasWholeWindowsOfNumbersAndTheTimeSinceTheFirstStep) {
  report::Run run;
  for (int64_t step = 1; step <= 6; ++step) run.steps.push_back({.step = step, .loss = static_cast<double>(7 - step), .seconds = 0.5});
  run.steps[2].loss = NAN;
  run.earlier_steps = 3;
  const std::vector<SmoothedPoint> points = SmoothedLoss(run, 2);
  ASSERT_EQ(points.size(), 3u) << "steps 2, 5 and 6";
  EXPECT_EQ(points[0].loss, 5.5);
  EXPECT_EQ(points[1].step, 5);
  EXPECT_EQ(points[1].seconds, 2.5);
  EXPECT_EQ(points[2].loss, 1.5) << "no rest of the step that was no number";
}

TEST(TimeToLossTest, LevelsFallAndAreReachedByAllRuns) {
  // The second makes steps in half the time, and needs more of them.
  const std::vector<report::Run> runs = {FallingRun(100, 15, 1), FallingRun(100, 20, 0.5)};
  const std::vector<LossLevel> levels = TimeToLoss(runs, 10);
  ASSERT_EQ(levels.size(), 4u);
  for (size_t i = 0; i < levels.size(); ++i) {
    ASSERT_EQ(levels[i].by_run.size(), 2u);
    for (const SmoothedPoint& reached : levels[i].by_run) EXPECT_LE(reached.loss, levels[i].loss);
    EXPECT_LT(levels[i].by_run[0].step, levels[i].by_run[1].step);
    EXPECT_GT(levels[i].by_run[0].seconds, levels[i].by_run[1].seconds);
    if (i == 0) continue;
    EXPECT_LT(levels[i].loss, levels[i - 1].loss);
    EXPECT_GE(levels[i].by_run[0].seconds, levels[i - 1].by_run[0].seconds);
  }
  EXPECT_NEAR(levels.back().loss, 2 + 3 * std::exp(-95.5 / 20), 0.06) << "what the worse of them ends at";
}

TEST(TimeToLossTest, ReportsLowestOfLevelsReachedInOneStep) {
  report::Run run;
  for (const double loss : {5.0, 4.9, 3.0, 2.9}) run.steps.push_back({.step = static_cast<int64_t>(run.steps.size()) + 1, .loss = loss});
  const std::vector<LossLevel> levels = TimeToLoss({run}, 1);
  ASSERT_EQ(levels.size(), 2u);
  EXPECT_EQ(levels[0].by_run[0].step, 3);
  EXPECT_LT(levels[0].loss, 3.4);
  EXPECT_EQ(levels[1].by_run[0].step, 4);
}

TEST(TimeToLossTest, OfARunThatDoesNotFallThereIsNone) {
  report::Run rising = FallingRun(50, 10, 1);
  for (StepPoint& point : rising.steps) point.loss = static_cast<double>(point.step);
  EXPECT_TRUE(TimeToLoss({rising}, 5).empty());
  EXPECT_TRUE(TimeToLoss({FallingRun(50, 10, 1), rising}, 5).empty());
  EXPECT_TRUE(TimeToLoss({report::Run{}}, 5).empty());
  EXPECT_TRUE(TimeToLoss({}, 5).empty());
}

}  // namespace
}  // namespace fusionllm::report
