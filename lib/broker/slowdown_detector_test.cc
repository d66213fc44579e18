#include "lib/broker/slowdown_detector.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::broker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kStep = 1.0;

// Three stages that the plan expects at 0.4 s each, and a link that needs 0.2 s of a step.
struct DriftingRun {
  std::vector<Slowdown> Step(std::vector<double> busy, double bytes_per_s = 1e6, double step_seconds = kStep) {
    std::vector<StageLoad> stages;
    for (size_t i = 0; i < busy.size(); ++i) {
      stages.push_back(
          {.device = std::string(1, static_cast<char>('a' + i)), .place = absl::StrCat("stage ", i), .busy_s = busy[i], .expected_s = 0.4});
    }
    const LinkLoad link{.src = "a", .dst = "b", .bytes = 2e5, .bytes_per_s = bytes_per_s, .planned_bytes_per_s = 1e6};
    return watch.Observe({step_seconds, predicted_s}, stages, {&link, 1});
  }
  std::vector<Slowdown> Steps(int count, const std::vector<double>& busy, double bytes_per_s = 1e6) {
    std::vector<Slowdown> all;
    for (int i = 0; i < count; ++i) {
      for (Slowdown& slowdown : Step(busy, bytes_per_s)) all.push_back(std::move(slowdown));
    }
    return all;
  }
  SlowdownDetector watch;
  double predicted_s = 0;
};

const std::vector<double> kWell = {0.4, 0.42, 0.41};
const std::vector<double> kOneSlow = {0.4, 0.8, 0.41};

TEST(SlowdownDetectorTest, ReportsStragglerOnceUntilItRecovers) {
  DriftingRun run;
  EXPECT_THAT(run.Steps(20, kWell), IsEmpty());
  EXPECT_TRUE(run.watch.quiet());
  EXPECT_THAT(run.Steps(4, kOneSlow), IsEmpty());
  EXPECT_FALSE(run.watch.quiet());
  EXPECT_FALSE(run.watch.any_slow());
  const std::vector<Slowdown> found = run.Steps(50, kOneSlow);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, Slowdown::Kind::kStraggler);
  EXPECT_EQ(found[0].device, "b");
  EXPECT_DOUBLE_EQ(found[0].measured, 0.8);
  EXPECT_DOUBLE_EQ(found[0].planned, 0.4);
  EXPECT_THAT(found[0].message, AllOf(HasSubstr("stage 1 on b"), HasSubstr("0.8 s"), HasSubstr("0.4 s"), HasSubstr("2.0 times")));
  EXPECT_TRUE(run.watch.IsSlow("b"));
  EXPECT_FALSE(run.watch.IsSlow("a"));
  EXPECT_NEAR(run.watch.SlownessOf("b"), 2, 0.05);

  const std::vector<Slowdown> over = run.Steps(10, kWell);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].recovered);
  EXPECT_THAT(over[0].message, HasSubstr("stage 1 on b is back"));
  EXPECT_FALSE(run.watch.any_slow());
  EXPECT_THAT(run.Steps(5, kOneSlow), SizeIs(1));
}

TEST(SlowdownDetectorTest, OneGoodStepBreaksTheRow) {
  DriftingRun run;
  run.Steps(5, kWell);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(run.Steps(4, kOneSlow), IsEmpty());
    EXPECT_THAT(run.Step(kWell), IsEmpty());
  }
}

TEST(SlowdownDetectorTest, WhatSlowsAllStagesAlikeMakesNoStraggler) {
  DriftingRun run;
  EXPECT_THAT(run.Steps(50, {0.9, 0.85, 1.0}), IsEmpty());
  EXPECT_THAT(run.Steps(50, {0.9, 1.0, 1.5}), SizeIs(1)) << "but one that is slower still";
}

TEST(SlowdownDetectorTest, SingleStageIsNeverAStraggler) {
  DriftingRun run;
  EXPECT_THAT(run.Steps(50, {4.0}), IsEmpty());
}

TEST(SlowdownDetectorTest, AStageThatIsLateByLittleOfTheStepIsNotWorthAWord) {
  DriftingRun run;
  for (int i = 0; i < 50; ++i) EXPECT_THAT(run.Step(kOneSlow, 1e6, /*step_seconds=*/10), IsEmpty());
}

TEST(SlowdownDetectorTest, AStageWithoutAnExpectationIsNotJudged) {
  SlowdownDetector watch;
  const StageLoad stages[] = {{.device = "a", .busy_s = 0.4, .expected_s = 0.4}, {.device = "b", .busy_s = 9, .expected_s = 0}};
  for (int i = 0; i < 20; ++i) EXPECT_THAT(watch.Observe({10}, stages, {}), IsEmpty());
}

TEST(SlowdownDetectorTest, AStepThatKeepsItsPredictionHasNeitherStragglersNorDegradedLinks) {
  DriftingRun run;
  run.predicted_s = kStep / 1.1;
  EXPECT_THAT(run.Steps(50, kOneSlow, 0.3e6), IsEmpty());
  EXPECT_TRUE(run.watch.quiet());
  run.predicted_s = kStep / 1.3;
  EXPECT_THAT(run.Steps(5, kOneSlow, 0.3e6), SizeIs(2)) << "what suffers is told at once";
}

TEST(SlowdownDetectorTest, AFindingStaysUntilItsLinkRecoversAndNotUntilTheStepDoes) {
  DriftingRun run;
  run.predicted_s = kStep / 1.3;
  EXPECT_THAT(run.Steps(10, kWell, 0.3e6), SizeIs(1));
  run.predicted_s = kStep;
  EXPECT_THAT(run.Steps(20, kWell, 0.3e6), IsEmpty());
  EXPECT_TRUE(run.watch.IsSlow("a", "b"));
  EXPECT_THAT(run.Steps(5, kWell), SizeIs(1));
}

TEST(SlowdownDetectorTest, ALinkThatLosesLittleOfTheStepDoesNotExplainIt) {
  DriftingRun run;
  // At 0.55 MB/s its 0.2 MB take 0.16 s longer.
  for (int i = 0; i < 50; ++i) EXPECT_THAT(run.Step(kWell, 0.55e6, /*step_seconds=*/1.8), IsEmpty());
  for (int i = 0; i < 4; ++i) run.Step(kWell, 0.55e6, 1.5);
  EXPECT_THAT(run.Step(kWell, 0.55e6, 1.5), SizeIs(1));
}

TEST(SlowdownDetectorTest, ADegradedLinkIsReportedWithItsFigures) {
  DriftingRun run;
  run.Steps(10, kWell);
  const std::vector<Slowdown> found = run.Steps(30, kWell, 0.3e6);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].kind, Slowdown::Kind::kLink);
  EXPECT_EQ(found[0].device, "a");
  EXPECT_EQ(found[0].peer, "b");
  EXPECT_DOUBLE_EQ(found[0].measured, 0.3e6);
  EXPECT_DOUBLE_EQ(found[0].planned, 1e6);
  EXPECT_THAT(found[0].message, AllOf(HasSubstr("the link a -> b"), HasSubstr("0.3 MB/s"), HasSubstr("1 MB/s"), HasSubstr("30 %")));
  EXPECT_THAT(run.Steps(10, kWell, 0.7e6), IsEmpty()) << "better, but not well";
  EXPECT_TRUE(run.watch.IsSlow("a", "b"));
  const std::vector<Slowdown> over = run.Steps(10, kWell, 0.95e6);
  ASSERT_THAT(over, SizeIs(1));
  EXPECT_TRUE(over[0].recovered);
}

TEST(SlowdownDetectorTest, ALinkThatCarriesLittleMayBeSlow) {
  SlowdownDetector watch;
  const LinkLoad link{.src = "a", .dst = "b", .bytes = 1e3, .bytes_per_s = 1e5, .planned_bytes_per_s = 1e6};
  for (int i = 0; i < 20; ++i) EXPECT_THAT(watch.Observe({kStep}, {}, {&link, 1}), IsEmpty());
}

TEST(SlowdownDetectorTest, AnUnmeasuredLinkIsNotJudged) {
  DriftingRun run;
  EXPECT_THAT(run.Steps(20, kWell, 0), IsEmpty());
}

TEST(SlowdownDetectorTest, ALinkIsJudgedByTheStepsInWhichItWasMeasured) {
  DriftingRun run;
  run.Steps(5, kWell);
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(run.Steps(1, kWell, 0.3e6), IsEmpty());
    EXPECT_THAT(run.Steps(4, kWell, 0), IsEmpty());
  }
  EXPECT_THAT(run.Steps(1, kWell, 0.3e6), SizeIs(1)) << "the fifth";
  EXPECT_THAT(run.Steps(20, kWell, 0), IsEmpty()) << "nobody knows whether it has recovered";
  EXPECT_TRUE(run.watch.IsSlow("a", "b"));
}

TEST(SlowdownDetectorTest, AHiccupOfALinkThatIsSeldomMeasuredIsForgotten) {
  DriftingRun run;
  run.Steps(5, kWell);
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(run.Steps(1, kWell, 0.3e6), IsEmpty());
    EXPECT_THAT(run.Steps(5, kWell, 0), IsEmpty());
  }
}

TEST(SlowdownDetectorTest, TheFirstStepsOfAPlanAreNotJudged) {
  DriftingRun run;
  EXPECT_THAT(run.Steps(6, kOneSlow), IsEmpty()) << "two of them do not count";
  EXPECT_THAT(run.Step(kOneSlow), SizeIs(1));
}

}  // namespace
}  // namespace fusionllm::broker
