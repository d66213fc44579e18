#include "lib/broker/codec_backoffs.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Of;
using ::testing::SizeIs;

RunPlan CompressedPlan(const std::string& codec = "int4") {
  RunPlan plan = testing::PlanOn({"a0", "b0"});
  plan.plan.links = {testing::Between(plan, 0, 1, {.codec = codec, .loss_cost = 0.25})};
  return plan;
}

// A loss that is flat, and then another one, step by step.
bool Diverge(CodecBackoffs& codecs, const RunPlan& plan, ActionQueue& queue, float last = 9) {
  bool changed = false;
  for (int64_t step = 1; step <= 60; ++step) {
    const float loss = step <= 45 ? 3 + 0.01f * static_cast<float>(step % 3) : last;
    changed = codecs.OnStep({.step = step, .loss = loss}, plan, queue) || changed;
  }
  return changed;
}

StageMeasured Found(const std::string& from, const std::string& to, const std::string& value = "v") {
  return {.name = "a0", .step = 7, .backoffs = {{.peer = "b0", .value = value, .from = from, .to = to}}};
}

TEST(CodecBackoffsTest, DivergingLossLowersTheLimit) {
  CodecBackoffs codecs({});
  ActionQueue queue;
  EXPECT_EQ(codecs.limit(), "");
  EXPECT_TRUE(Diverge(codecs, CompressedPlan(), queue));
  EXPECT_NE(codecs.limit(), "");
  const auto events = Of<EmitEvent>(queue.Take());
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(events[0].reduces_compression);
}

TEST(CodecBackoffsTest, DivergenceWithoutLossyCodecsOrAGuardIsNotTheirs) {
  ActionQueue queue;
  CodecBackoffs exact({}), unguarded({.guard = compression::GuardMode::kNone});
  EXPECT_FALSE(Diverge(exact, CompressedPlan("fp32"), queue));
  EXPECT_FALSE(Diverge(unguarded, CompressedPlan(), queue));
  EXPECT_THAT(queue.Take(), IsEmpty());
}

TEST(CodecBackoffsTest, WarningIsGivenOncePerEpoch) {
  CodecBackoffs codecs({.guard = compression::GuardMode::kWarn});
  ActionQueue queue;
  for (int epoch = 0; epoch < 2; ++epoch) {
    codecs.BeginEpoch();
    EXPECT_FALSE(Diverge(codecs, CompressedPlan(), queue));
    EXPECT_THAT(Of<EmitEvent>(queue.Take()), SizeIs(1));
  }
  EXPECT_EQ(codecs.limit(), "");
}

TEST(CodecBackoffsTest, NumbersThatAreNotFiniteRuleCompressionOutTheSecondTime) {
  CodecBackoffs codecs({.checkpoints = true});
  ActionQueue queue;
  const StageEnded ended{.name = "b0", .status = absl::InvalidArgumentError("nan"), .not_finite = true};
  EXPECT_TRUE(codecs.OnNotFinite(ended, "stage 1 on b0: nan", 12, CompressedPlan(), queue));
  EXPECT_THAT(Of<EmitEvent>(queue.Take()).back().message, HasSubstr("stage 1 on b0: nan; compression backs off from int4 to "));
  EXPECT_TRUE(codecs.OnNotFinite(ended, "stage 1 on b0: nan", 12, CompressedPlan(), queue));
  EXPECT_EQ(codecs.limit(), compression::ToString(compression::Exact()));
  EXPECT_FALSE(codecs.OnNotFinite(ended, "stage 1 on b0: nan", 12, CompressedPlan(), queue)) << "nothing is lossy any more";
}

TEST(CodecBackoffsTest, NumbersThatAreNotFiniteEndARunThatCannotGoBack) {
  CodecBackoffs codecs({});
  ActionQueue queue;
  EXPECT_FALSE(codecs.OnNotFinite({.name = "b0", .not_finite = true}, "", 12, CompressedPlan(), queue));
}

TEST(CodecBackoffsTest, SendersLimitIsKeptAndOnlyEverLowered) {
  CodecBackoffs codecs({});
  ActionQueue queue;
  codecs.OnMeasured(Found("int4", "int8"), CompressedPlan(), queue);
  codecs.OnMeasured(Found("int4", "int8"), CompressedPlan(), queue);
  const auto events = Of<EmitEvent>(queue.Take());
  ASSERT_THAT(events, SizeIs(1)) << "once";
  EXPECT_EQ(events[0].expected_loss_increase, 0.25);
  EXPECT_EQ(events[0].stage, 0);
  EXPECT_EQ(codecs.limits(), (CodecLimits{{{"v", false}, "int8"}}));
  codecs.OnMeasured(Found("int8", "fp16"), CompressedPlan(), queue);
  codecs.OnMeasured(Found("int4", "int8"), CompressedPlan(), queue);
  EXPECT_EQ(codecs.limits(), (CodecLimits{{{"v", false}, "fp16"}}));
}

TEST(CodecBackoffsTest, SenderThatKeepsItsCodecIsReportedOnce) {
  CodecBackoffs codecs({.guard = compression::GuardMode::kWarn});
  ActionQueue queue;
  for (int i = 0; i < 2; ++i) codecs.OnMeasured(Found("int4", "int4"), CompressedPlan(), queue);
  EXPECT_THAT(Of<EmitEvent>(queue.Take()), SizeIs(1));
  EXPECT_THAT(codecs.limits(), IsEmpty());
}

TEST(CodecBackoffsTest, LimitsOfTheRunBeforeHold) {
  CodecBackoffs codecs({.codec_limit = "int8", .codec_limits = {{{"v", true}, "fp16"}}});
  EXPECT_EQ(codecs.limit(), "int8");
  codecs.Adopt("fp16", {});
  EXPECT_EQ(codecs.limit(), "fp16");
  EXPECT_THAT(codecs.limits(), IsEmpty());
  codecs.Adopt("", {});
  EXPECT_EQ(codecs.limit(), "fp16") << "none was found since";
}

}  // namespace
}  // namespace fusionllm::broker
