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

PlanFigures PlanOfTwoSites() {
  return {.step_s = 29.7,
          .tokens_per_s = 2206.5,
          .steps = 5000,
          .site_bytes = 735'000'000,
          .compressed = true,
          .loss_cost = 0.137,
          .loss_cost_source = "a probe",
          .bottleneck = "The step is limited by the tied gradients of wte.",
          .memory = {{.device = "g0", .bytes = 20LL << 30, .of_bytes = 24LL << 30}, {.device = "b0", .bytes = 3 << 20}},
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
  PlanFigures figures = PlanOfTwoSites();
  figures.parameters = 124'439'808;
  figures.tokens_per_step = 65'536;
  EXPECT_EQ(PlanSentences(figures).front(), "size: 124,439,808 parameters are trained, a step sees 65,536 tokens");
}

TEST(LimitPhrase, FollowsATitleWithoutRepeatingIt) {
  EXPECT_EQ(LimitPhrase("The step is limited by x, busy 9% of the step: if it took 10% less."),
            "x, busy 9% of the step: if it took 10% less.");
  EXPECT_EQ(LimitPhrase("Nothing alone limits the step: 10% less."), "nothing alone: 10% less.");
  EXPECT_EQ(LimitPhrase("Another build's words."), "Another build's words.");
  EXPECT_EQ(LimitPhrase(""), "");
}

TEST(PlanSentences, MemoryThatDepthTakesByChoiceHasThePriceOfLess) {
  PlanFigures figures = PlanOfTwoSites();
  EXPECT_EQ(PlanSentences(figures).back(), "memory: g0 20.0 GiB of 24.0 GiB, b0 3.00 MiB");
  figures.fewer_in_flight = {.in_flight = 2, .step_s = 1.25 * figures.step_s, .bytes = 5LL << 30};
  const std::string price = absl::StrCat("; with spec.strategy.inFlight: 2 the largest would be 5.00 GiB, and a step ",
                                         StepSeconds(1.25 * figures.step_s), " (+25.0%)");
  EXPECT_EQ(PlanSentences(figures).back(), "memory: g0 20.0 GiB of 24.0 GiB, b0 3.00 MiB" + price);
  while (figures.memory.size() < 9) figures.memory.push_back(figures.memory[1]);
  EXPECT_EQ(PlanSentences(figures).back(), "memory of 9 devices: from b0 3.00 MiB to g0 20.0 GiB of 24.0 GiB" + price);
}

TEST(PlanSentences, OfImagesOnOneSiteWithoutCodecsSaySo) {
  const std::vector<std::string> sentences = PlanSentences({.unit = "images", .step_s = 0.5, .tokens_per_s = 64, .steps = 1});
  EXPECT_THAT(sentences, ElementsAre("speed: 64.0 images/s, 1 step takes 0.50s without evaluations and checkpoints",
                                     "between sites: nothing is sent", "compression: none, so it costs no loss"));
}

TEST(PlanSentences, CodecsThatCostNothingAreNotTakenForNone) {
  PlanFigures figures = PlanOfTwoSites();
  figures.loss_cost = 0;
  EXPECT_THAT(PlanSentences(figures), Contains("compression: no loss is expected from its codecs (a probe)"));
}

TEST(PlanSentences, ManyDevicesAreSummedUp) {
  PlanFigures figures = PlanOfTwoSites();
  figures.memory.assign(20, {.device = "a", .bytes = 1 << 20});
  figures.memory[7] = {.device = "largest", .bytes = 5 << 20};
  EXPECT_THAT(PlanSentences(figures), Contains("memory of 20 devices: from a 1.00 MiB to largest 5.00 MiB"));
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
