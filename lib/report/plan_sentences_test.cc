#include "lib/report/plan_sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/report/number_format.h"

namespace fusionllm::report {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

plan::Plan PlanOfTwoSites() {
  return {.predicted_step_seconds = 29.7,
          .stages = {{.devices = {"g0"}, .memory_bytes = 20LL << 30, .device_memory_bytes = 24LL << 30},
                     {.index = 1, .devices = {"b0"}, .memory_bytes = 3 << 20}},
          .links = {{.src = "g0", .dst = "b0", .dst_stage = 1, .codec = "int8"}},
          .tokens_per_second = 2206.5,
          .steps = 5000,
          .site_bytes = 735'000'000,
          .loss_cost = 0.137,
          .loss_cost_source = "a probe",
          .bottleneck = "The step is limited by the tied gradients of wte.",
          .warnings = {{"DeviceNearlyIdle", "b0 computes 0.2% of the step"}}};
}

TEST(PlanSentences, SayWhatIsAskedFirst) {
  EXPECT_THAT(
      PlanSentences(PlanOfTwoSites()),
      ElementsAre("speed: 2,206 tokens/s, 5,000 steps take 1d17h without evaluations and checkpoints",
                  "between sites: 735 MB a step, 3.67 TB in all", "limit: the tied gradients of wte.",
                  "compression: expected to raise the loss by 0.14 nats (a probe)", "memory: g0 20.0 GiB of 24.0 GiB, b0 3.00 MiB"));
  EXPECT_THAT(PlanWarnings(PlanOfTwoSites()), ElementsAre("warning: DeviceNearlyIdle: b0 computes 0.2% of the step"));
}

TEST(PlanSentences, ModelAndStepHaveSizesWhereTheyAreKnown) {
  plan::Plan plan = PlanOfTwoSites();
  plan.parameters = 124'439'808;
  plan.tokens_per_step = 65'536;
  EXPECT_EQ(PlanSentences(plan).front(), "size: 124,439,808 parameters are trained, a step sees 65,536 tokens");
}

TEST(LimitPhrase, FollowsATitleWithoutRepeatingIt) {
  EXPECT_EQ(LimitPhrase("The step is limited by x, busy 9% of the step: if it took 10% less."),
            "x, busy 9% of the step: if it took 10% less.");
  EXPECT_EQ(LimitPhrase("Nothing alone limits the step: 10% less."), "nothing alone: 10% less.");
  EXPECT_EQ(LimitPhrase("Another build's words."), "Another build's words.");
  EXPECT_EQ(LimitPhrase(""), "");
}

TEST(PlanSentences, MemoryThatDepthTakesByChoiceHasThePriceOfLess) {
  plan::Plan plan = PlanOfTwoSites();
  EXPECT_EQ(PlanSentences(plan).back(), "memory: g0 20.0 GiB of 24.0 GiB, b0 3.00 MiB");
  plan.fewer_in_flight = {.in_flight = 2, .predicted_step_seconds = 1.25 * plan.predicted_step_seconds, .memory_bytes = 5LL << 30};
  const std::string price = absl::StrCat("; with spec.strategy.inFlight: 2 the largest would be 5.00 GiB, and a step ",
                                         StepSeconds(1.25 * plan.predicted_step_seconds), " (+25.0%)");
  EXPECT_EQ(PlanSentences(plan).back(), "memory: g0 20.0 GiB of 24.0 GiB, b0 3.00 MiB" + price);
  while (plan.stages.size() < 9) plan.stages.push_back(plan.stages[1]);
  EXPECT_EQ(PlanSentences(plan).back(), "memory of 9 devices: from b0 3.00 MiB to g0 20.0 GiB of 24.0 GiB" + price);
}

TEST(PlanSentences, OfImagesOnOneSiteWithoutCodecsSaySo) {
  const std::vector<std::string> sentences =
      PlanSentences({.predicted_step_seconds = 0.5, .unit = "images", .tokens_per_second = 64, .steps = 1});
  EXPECT_THAT(sentences, ElementsAre("speed: 64.0 images/s, 1 step takes 0.50s without evaluations and checkpoints",
                                     "between sites: nothing is sent", "compression: none, so it costs no loss"));
}

TEST(PlanSentences, CodecsThatCostNothingAreNotTakenForNone) {
  plan::Plan plan = PlanOfTwoSites();
  plan.loss_cost = 0;
  EXPECT_THAT(PlanSentences(plan), Contains("compression: no loss is expected from its codecs (a probe)"));
}

TEST(PlanSentences, ManyDevicesAreSummedUp) {
  plan::Plan plan = PlanOfTwoSites();
  plan.stages.assign(20, {.devices = {"a"}, .memory_bytes = 1 << 20});
  plan.stages[7] = {.devices = {"largest"}, .memory_bytes = 5 << 20};
  EXPECT_THAT(PlanSentences(plan), Contains("memory of 20 devices: from a 1.00 MiB to largest 5.00 MiB"));
}

TEST(PlanSentences, ABoundSaysWhatItLeavesOut) {
  const StepBounds bounds{.step_s = 0.55, .compute_s = 0.24, .link_s = 0.31, .stages = 2};
  EXPECT_EQ(BoundSentence(bounds),
            "lower bound: at least 0.24s by compute alone and 0.31s by links alone; no plan goes below it and few come near: the 0.55s of "
            "this one also have the pipeline's fill and drain, and waits");
  EXPECT_EQ(BoundSentence({.step_s = 0.25, .compute_s = 0.24}), "lower bound: at least 0.24s by compute alone");
  EXPECT_EQ(BoundSentence({.step_s = 0.25, .compute_s = 0.24, .is_optimal = true, .stages = 2}),
            "lower bound: this plan itself; the search ruled out every faster one that spec.strategy allows");
  EXPECT_EQ(BoundSentence({.step_s = 0.25}), "");
}

TEST(PlanSentences, OfAPlanOfAnotherBuildSayNothing) { EXPECT_THAT(PlanSentences({}), IsEmpty()); }

}  // namespace
}  // namespace fusionllm::report
