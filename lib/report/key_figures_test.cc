#include "lib/report/key_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace fusionllm::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two stages in two sites. A step puts 10 kB on each direction; ten steps and two evaluations of 30 kB forward were made.
report::Run RunOfTwoSites() {
  report::Run run;
  run.site_of = {{"a", "paris"}, {"b", "tokyo"}};
  for (int64_t step = 1; step <= 10; ++step) {
    run.steps.push_back({.step = step, .loss = 4.0 - 0.1 * static_cast<double>(step), .seconds = 0.5, .tokens_per_second = 1000});
  }
  run.steps_made = 10;
  run.total_steps = 40;
  run.targets_per_step = 500;
  run.plan = plan::Plan{.strategy = "op-fence", .predicted_step_seconds = 0.4, .micro_batches = 4, .loss_cost = 0.03};
  run.plan->stages = {{.index = 0, .devices = {"a"}, .compute_seconds = 0.3}, {.index = 1, .devices = {"b"}, .compute_seconds = 0.1}};
  run.plan->links = {{.src = "a", .dst = "b", .bytes = 10'000, .codec = "int8", .ratio = 4, .seconds = 0.2, .loss_cost = 0.03},
                     {.src = "b", .dst = "a", .backward = true, .bytes = 10'000, .codec = "int8", .ratio = 4, .seconds = 0.2}};
  run.plans = 1;
  run.summary = Summary{.steps = 10, .final_loss = 3.0, .median_step_s = 0.5, .predicted_step_s = 0.4, .wire_bytes = 260'000};
  run.summary->links = {{.src = "a", .dst = "b", .bytes = 160'000, .codec = "int8", .bytes_per_s = 40'000, .evaluation_bytes = 60'000},
                        {.src = "b", .dst = "a", .bytes = 100'000, .codec = "int8", .evaluation_bytes = 0}};
  run.summary->stages = {{.index = 0, .device = "a", .busy_ratio = 0.6, .peak_memory_bytes = 3 << 20, .predicted_memory_bytes = 4 << 20},
                         {.index = 1, .device = "b", .busy_ratio = 0.2, .peak_memory_bytes = 5 << 20, .predicted_memory_bytes = 6 << 20}};
  return run;
}

// "-" when there is no such figure.
std::string Sentence(const report::Run& run, const std::string& name) {
  for (const KeyFigure& figure : KeyFigures(run)) {
    if (figure.name == name) return InOneSentence(figure);
  }
  return "-";
}

TEST(KeyFiguresTest, StepTrafficExcludesEvaluations) {
  report::Run run = RunOfTwoSites();
  run.evaluations = {{5, 3.5, {}}, {10, 3.2, {}}};
  EXPECT_EQ(Sentence(run, "a step, between sites"), "20.0 kB measured, 20.0 kB predicted (without evaluations)");
  EXPECT_EQ(Sentence(run, "in all, between sites"), "260 kB measured, 200 kB predicted (60.0 kB of it by evaluations)");
  run.summary->links[1].evaluation_bytes.reset();
  EXPECT_EQ(Sentence(run, "a step, between sites"), "20.0 kB measured, 20.0 kB predicted (with evaluations)") << "of that link";
  run.evaluations.clear();
  run.summary->links[0] = {.src = "a", .dst = "b", .bytes = 100'000};
  EXPECT_EQ(Sentence(run, "a step, between sites"), "20.0 kB measured, 20.0 kB predicted") << "there was none";
}

TEST(KeyFiguresTest, SeveralPlansAreNamedBesideThePrediction) {
  report::Run run = RunOfTwoSites();
  run.plans = 3;
  EXPECT_THAT(Sentence(run, "a step, between sites"), HasSubstr("predicted (measured under 3 plans, predicted by the last"));
  EXPECT_THAT(Sentence(run, "in all, between sites"), Not(HasSubstr("predicted")));
  EXPECT_THAT(Sentence(run, "time of 10 steps"), Not(HasSubstr("predicted")));
}

TEST(KeyFiguresTest, StepsThatWereMadeAgainShareTheBytes) {
  report::Run run = RunOfTwoSites();
  run.steps_made = 20;
  EXPECT_THAT(Sentence(run, "a step, between sites"), HasSubstr("10.0 kB measured"));
}

TEST(KeyFiguresTest, WithoutKnownSitesTheTrafficIsThatOnLinks) {
  report::Run run = RunOfTwoSites();
  run.site_of.clear();
  EXPECT_THAT(Sentence(run, "a step, on links"), HasSubstr("20.0 kB measured"));
  run.site_of = {{"a", "paris"}, {"b", "paris"}};
  EXPECT_THAT(Sentence(run, "a step, on links"), HasSubstr("20.0 kB measured"));
}

TEST(KeyFiguresTest, TimesAreThoseOfAStepOfThisStartAndOfAllSteps) {
  report::Run run = RunOfTwoSites();
  EXPECT_EQ(Sentence(run, "steps"), "10 of 40");
  EXPECT_EQ(Sentence(run, "step time"), "0.50s measured, 0.40s predicted (median; measured is +25.0%)");
  EXPECT_EQ(Sentence(run, "tokens/s"), "1,000 measured, 1,250 predicted");
  EXPECT_EQ(Sentence(run, "time of 10 steps"),
            "5.00s measured, 4.00s predicted (the other 30 steps would take about 15s at the measured step)");
  run.elapsed_s = 9;
  run.earlier_steps = 6;
  EXPECT_EQ(Sentence(run, "steps"), "10 of 40 (4 of them by this start)");
  EXPECT_EQ(Sentence(run, "time of 4 steps"),
            "2.00s measured, 1.60s predicted (9.00s with start, evaluations and checkpoints; the other 30 steps would take about 15s at "
            "the measured "
            "step)");
  run.of_earlier_start = true;
  EXPECT_EQ(Sentence(run, "steps"), "10 of 40 (4 of them by the last start that trained, whose figures these are)");
  EXPECT_THAT(Sentence(run, "time of 4 steps"), ::testing::Not(HasSubstr("with start")));
}

TEST(KeyFiguresTest, StepsThatAreLeftAreTimedByTheMeasuredStepAlone) {
  report::Run run = RunOfTwoSites();
  run.total_steps = 11;
  EXPECT_EQ(Sentence(run, "time of 10 steps"), "5.00s measured, 4.00s predicted (the last step would take about 1s at the measured step)");
  run.summary->median_step_s = 0;  // fewer than three steps
  EXPECT_EQ(Sentence(run, "time of 10 steps"), "5.00s measured, 4.00s predicted");
}

TEST(KeyFiguresTest, ARunThatIsDoneForetellsNothingOfItsSteps) {
  report::Run run = RunOfTwoSites();
  run.total_steps = 10;
  run.elapsed_s = 9;
  EXPECT_EQ(Sentence(run, "time of 10 steps"), "5.00s measured, 4.00s predicted (9.00s with start, evaluations and checkpoints)");
  run.earlier_steps = 6;  // gone on with: 4 of the 10 are of this start
  EXPECT_EQ(Sentence(run, "time of 4 steps"), "2.00s measured, 1.60s predicted (9.00s with start, evaluations and checkpoints)");
}

TEST(KeyFiguresTest, LossesAreAMeanAndTheNewestValidation) {
  report::Run run = RunOfTwoSites();
  EXPECT_EQ(Sentence(run, "training loss"), "3.0500 (mean of the last 2 steps; of the last one alone 3.0000)");
  EXPECT_EQ(Sentence(run, "validation loss"), "-");
  run.evaluations = {{5, 3.1, 0.25}, {10, 3.2, 0.3}};
  EXPECT_EQ(Sentence(run, "validation loss"), "3.2000 (after step 10, accuracy 30.0%, best 3.1000 after step 5)");
  run.evaluations = {{10, NAN, {}}};
  EXPECT_EQ(Sentence(run, "validation loss"), "none: no target counts, or it is NaN or infinite (after step 10)");
  run.evaluations = {{10, NAN, 0.1}};
  EXPECT_EQ(Sentence(run, "validation loss"), "NaN or infinite (after step 10, accuracy 10.0%)") << "targets were counted";
  run.steps.back().loss = NAN;
  EXPECT_EQ(Sentence(run, "training loss"), "NaN or infinite (mean of the last 2 steps; of the last one alone NaN or infinite)");
  run.steps.resize(1);
  EXPECT_EQ(Sentence(run, "training loss"), "3.9000 (of the last step)");
}

TEST(KeyFiguresTest, ShowsCountedTargetsWhereLossIgnoresSome) {
  report::Run run = RunOfTwoSites();
  EXPECT_EQ(Sentence(run, "tokens that count"), "-") << "all do";
  run.steps.resize(2);
  run.steps[0].targets = 10;
  run.steps[0].ignored_targets = 22;
  run.steps[1].targets = 6;
  run.steps[1].ignored_targets = 26;
  EXPECT_EQ(Sentence(run, "tokens that count"), "16 (25.0% of all; the loss ignores the others)");
  run.unit = "images";
  EXPECT_EQ(Sentence(run, "images that count"), "16 (25.0% of all; the loss ignores the others)");
}

TEST(KeyFiguresTest, WhatLimitsTheStepIsThePlansSentenceBesideWhatWasBusiest) {
  report::Run run = RunOfTwoSites();
  run.summary->median_step_s = 0.45;
  EXPECT_EQ(Sentence(run, "busiest"),
            "stage 0 on a, 0.30s of the step's 0.40s; a computes 60% of the time, the link a > b sends 56% of it");
  run.plan->bottleneck = "The step is limited by the tied gradients of wte: 1 MB, 0.3 s of 0.4 s.";
  EXPECT_THAT(Sentence(run, "limited by"), HasSubstr("the tied gradients of wte: 1 MB, 0.3 s of 0.4 s; a computes 60%"));
  run.summary->stages.clear();
  run.summary->links.clear();
  EXPECT_EQ(Sentence(run, "limited by"), "the tied gradients of wte: 1 MB, 0.3 s of 0.4 s");
}

TEST(KeyFiguresTest, BusyShareNamesWaitsForAProcessor) {
  report::Run run = RunOfTwoSites();
  run.summary->stages[0].lateness_s = 0.9;  // of the 3 s that a was at work: 10 steps of half a second, 60% busy
  EXPECT_THAT(Sentence(run, "busiest"), HasSubstr("a is at work 60% of the time, for 30% of that waiting for a processor, "));
  run.summary->stages[0].lateness_s = 0.2;
  EXPECT_THAT(Sentence(run, "busiest"), HasSubstr("a computes 60% of the time, "));
}

TEST(KeyFiguresTest, FewerTiedBytesThanPlannedAreExplained) {
  report::Run run = RunOfTwoSites();
  run.plan->links[1].tied_bytes = 12'000;
  EXPECT_EQ(Sentence(run, "a step, between sites").find("rows of zeros"), std::string::npos) << "as many bytes as planned";
  run.plan->links[1].bytes = 20'000;
  EXPECT_EQ(Sentence(run, "a step, between sites"),
            "20.0 kB measured, 30.0 kB predicted (without evaluations; tied gradients are sent without their rows of zeros, which the plan "
            "cannot count)");
  run.plan->links[1].tied_bytes = 9'000;
  EXPECT_THAT(Sentence(run, "a step, between sites"), Not(HasSubstr("rows of zeros"))) << "more is missing than tied gradients have";
}

TEST(KeyFiguresTest, AdviceOfThePlanIsNotRepeated) {
  report::Run run = RunOfTwoSites();
  run.summary->median_step_s = 0.4;
  const std::string limit =
      "The step is limited by the tied gradients of wte, 1 MB: if they took 10% less time, the step would be 8% shorter.";
  const std::string advice =
      " What would help: spec.model.config.tieWeights: false (the head then has weights of its own), or a faster link.";
  run.plan->bottleneck = limit + advice;
  EXPECT_THAT(Sentence(run, "limited by"), ::testing::StartsWith("the tied gradients of wte, 1 MB: if they took 10% less time, the step "
                                                                 "would be 8% shorter; a computes 60%"));
  run.plan->bottleneck = limit + advice + " Next is stage 0 on a, busy 60% of the step: 2.0%.";
  EXPECT_THAT(Sentence(run, "limited by"), AllOf(HasSubstr("8% shorter. Next is stage 0 on a"), Not(HasSubstr("tieWeights"))));
}

TEST(KeyFiguresTest, OfAStepThatWasNotAsPlannedWhatWasMeasuredStandsFirst) {
  report::Run run = RunOfTwoSites();
  run.plan->bottleneck = "The step is limited by stage 0 on a, busy 42% of the step.";
  run.summary->median_step_s = 0.51;  // of 0.4 s
  EXPECT_EQ(Sentence(run, "busiest"),
            "a computes 60% of the time, the link a > b sends 49% of it; planned: stage 0 on a, busy 42% of the step");
  EXPECT_EQ(Sentence(run, "limited by"), "-");
  run.summary->median_step_s = 0.31;
  EXPECT_THAT(Sentence(run, "busiest"), HasSubstr("; planned: stage 0 on a"));
  run.summary->median_step_s = 0.49;
  EXPECT_THAT(Sentence(run, "limited by"), ::testing::StartsWith("stage 0 on a, busy 42% of the step; a computes 60%"));
}

TEST(KeyFiguresTest, WhereNothingAloneLimitsTheStepTheLineSaysSo) {
  report::Run run = RunOfTwoSites();
  run.summary->median_step_s = 0.4;
  run.plan->bottleneck =
      "Nothing alone limits the step: 10% less time of one thing would save at most 0.9% (stage 3 on h3). "
      "All 4 stages are busy 93 to 100% of the step.";
  EXPECT_THAT(
      Sentence(run, "limited by"),
      ::testing::StartsWith("nothing alone: 10% less time of one thing would save at most 0.9% (stage 3 on h3). All 4 stages are busy "
                            "93 to 100% of the step; a computes 60%"));
}

TEST(KeyFiguresTest, TheErrorOfMessagesStandsBesideTheExpectedCost) {
  report::Run run = RunOfTwoSites();
  const std::string expected = "expected to cost +0.03 nats; other seeds alone differ by some 0.02, so one run may not show it";
  EXPECT_EQ(Sentence(run, "compression"), expected);
  run.summary->links[0].compared_messages = 3;
  run.summary->links[0].relative_error = 0.372;
  run.summary->links[0].cosine = 0.928;
  EXPECT_EQ(Sentence(run, "compression"), expected + "; messages arrive with 37% error (cosine 0.93)");
  run.summary->links[1].compared_messages = 3;
  run.summary->links[1].relative_error = 0.5;
  run.summary->links[1].cosine = 0.87;
  run.plan->loss_cost = 0.14;
  run.plan->loss_cost_source = "measured on small models";
  EXPECT_EQ(
      Sentence(run, "compression"),
      "expected to cost +0.14 nats (measured on small models); messages arrive with 50% error (cosine 0.87) on the worst link, b > a");
}

TEST(KeyFiguresTest, ReportsWorstCompressionErrorAndBackoffs) {
  report::Run run = RunOfTwoSites();
  run.summary->links[0].compared_messages = 3;
  run.summary->links[0].relative_error = 0.1;
  run.summary->links[0].cosine = 0.98;
  run.summary->compression = CompressionTotal{.max_relative_error = 0.37, .min_cosine = 0.93, .compared = true, .backoffs = 2};
  EXPECT_EQ(
      Sentence(run, "compression"),
      "the planned codecs were expected to cost +0.03 nats; other seeds alone differ by some 0.02, so one run may not show it; "
      "activations arrived with 10% error "
      "in the mean (cosine 0.98); at most 37%, cosine at least 0.93; codecs were made less aggressive 2 times, so less was lost and more "
      "bytes crossed than planned (CompressionBackoff says "
      "where)");
  run.plan->links.push_back({.src = "b", .dst = "c", .codec = "int8"});
  run.summary->links.push_back({.src = "b", .dst = "c", .compared_messages = 1, .relative_error = 0.3, .cosine = 0.94});
  EXPECT_THAT(Sentence(run, "compression"), HasSubstr("activations arrived with 15% error in the mean (cosine 0.97); at most 37%"))
      << "each message counts once";
  run.summary->links[1].compared_messages = 2;
  run.summary->links[1].relative_error = 0.35;
  run.summary->links[1].cosine = 0.93;
  EXPECT_THAT(Sentence(run, "compression"),
              HasSubstr("activations arrived with 15% error in the mean (cosine 0.97), gradients with 35% (cosine "
                        "0.93); at most 37%, cosine at least 0.93"));
  run.summary->links[1].codec = "topk@9:int8";
  EXPECT_THAT(Sentence(run, "compression"), HasSubstr("gradients with 35% (cosine 0.93) of the values that top-k sent; at most 37%"));
  run.plan->links.pop_back();
  run.summary->links[0].compared_messages = 0;
  EXPECT_THAT(Sentence(run, "compression"), HasSubstr("messages with 30% (cosine 0.94)")) << "of a link that an earlier plan had";
  run.summary->links[2].compared_messages = 0;
  EXPECT_THAT(Sentence(run, "compression"), HasSubstr("; gradients arrived with 35% error in the mean (cosine 0.93) of the values"));
  run.summary->links[1].compared_messages = 0;
  for (plan::Link& link : run.plan->links) link.codec = "fp32";  // of the last plan
  run.summary->links[0].compared_messages = 0;
  run.summary->compression = CompressionTotal{.backoffs = 1};
  EXPECT_EQ(
      Sentence(run, "compression"),
      "codecs were made less aggressive 1 time, so less was lost and more bytes crossed than planned (CompressionBackoff says where)");
  run.summary->compression = CompressionTotal{};
  EXPECT_EQ(Sentence(run, "compression"), "-");
}

TEST(KeyFiguresTest, MemoryIsThatOfEachDeviceOrOfTheFullestOfMany) {
  report::Run run = RunOfTwoSites();
  EXPECT_EQ(Sentence(run, "memory"), "5.00 MiB on b, 3.00 MiB on a measured, 6.00 MiB on b, 4.00 MiB on a predicted");
  for (int i = 2; i < 6; ++i) run.summary->stages.push_back({.index = i, .device = "c", .peak_memory_bytes = 1 << 20});
  EXPECT_EQ(Sentence(run, "memory"), "5.00 MiB on b measured, 6.00 MiB on b predicted (the most of 6 devices)");
}

TEST(KeyFiguresTest, OfARunOnOneDeviceThereIsNoWordOfLinksOrCompression) {
  report::Run run = RunOfTwoSites();
  run.plan->stages.resize(1);
  run.plan->links.clear();
  run.summary->links.clear();
  run.summary->wire_bytes = 0;
  run.summary->stages.resize(1);
  for (const KeyFigure& figure : KeyFigures(run)) {
    EXPECT_THAT(figure.name, AllOf(Not(HasSubstr("sites")), Not(HasSubstr("links")), Not(HasSubstr("compression"))));
  }
  EXPECT_EQ(Sentence(run, "memory"), "3.00 MiB measured, 4.00 MiB predicted (peak)");
}

TEST(KeyFiguresTest, ARunThatMadeNothingHasNone) { EXPECT_TRUE(KeyFigures(report::Run{}).empty()); }

TEST(KeyFiguresTest, SumsOfReplicasArePartOfThePlannedTraffic) {
  report::Run run = RunOfTwoSites();
  run.plan->links.clear();
  run.plan->replicas = 2;
  run.plan->stages = {{.index = 0, .devices = {"a", "b"}, .sync_bytes = 700, .chain = {0, 1}}};
  EXPECT_EQ(PlannedBytes(run), 1400) << "there and back";
}

}  // namespace
}  // namespace fusionllm::report
