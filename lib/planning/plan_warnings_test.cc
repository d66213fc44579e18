// What a plan warns of: stages that do nothing, devices that wait, degraded links, codecs that are not those that the job names.
#include "lib/planning/plan_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/planning/testing/three_devices.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string MessagesOf(const plan::Plan& plan, const std::string& reason) {
  std::string messages;
  for (const plan::Warning& warning : plan.warnings) {
    if (warning.reason == reason) absl::StrAppend(&messages, warning.message, "\n");
  }
  return messages;
}

TEST(PlanWarningsTest, ALossAloneIsAStageWithoutParameters) {
  const auto workload = Resolve({"spec.strategy={stages: 2, pins: [{ops: lm_head, device: paris-0}, {ops: loss, device: tokyo-0}]}"});
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload));
  ASSERT_EQ(plan.stages.size(), 2);
  EXPECT_THAT(MessagesOf(plan, "StageWithoutParameters"),
              AllOf(HasSubstr("stage 1 on tokyo-0 has no parameters (loss)"), HasSubstr("spec.strategy.stages: 2")));
  EXPECT_THAT(MessagesOf(plan, "DeviceNearlyIdle"), HasSubstr("tokyo-0 computes "));
  const auto between =
      Resolve({"spec.strategy={stages: 2, pins: [{ops: block.1.ln_1, device: paris-0}, {ops: block.2.ln_1, device: tokyo-0}]}"});
  const plan::Plan other = PlanOf(*between, OnTopology(*between));
  EXPECT_EQ(MessagesOf(other, "StageWithoutParameters"), "");
  EXPECT_EQ(MessagesOf(other, "DeviceNearlyIdle"), "");
}

TEST(PlanWarningsTest, StageWithoutParametersInTheMiddleCouldRunBesideItsNeighbour) {
  const auto workload =
      Resolve({"spec.strategy={stages: 3, pins: [{ops: block.1.mlp.c_fc, device: paris-0}, {ops: block.1.mlp.gelu, device: paris-1}, {ops: "
               "block.1.mlp.c_proj, device: tokyo-0}]}"});
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload));
  ASSERT_EQ(plan.stages.size(), 3);
  EXPECT_THAT(MessagesOf(plan, "StageWithoutParameters"),
              AllOf(HasSubstr("stage 1 on paris-1 has no parameters (block.1.mlp.gelu): its ops could run in a stage beside it"),
                    Not(HasSubstr("turned into a loss"))));
}

TEST(PlanWarningsTest, CodecTooCoarseForALossInputIsReportedWithTheOneUsed) {
  const auto cut = [](const std::string& last, const std::string& next, const std::string& compression) {
    const std::string pins = "[{ops: " + last + ", device: paris-0}, {ops: " + next + ", device: tokyo-0}]";
    const auto workload = Resolve({"spec.strategy={stages: 2, pins: " + pins + "}", "spec.compression=" + compression});
    return MessagesOf(PlanOf(*workload, OnTopology(*workload)), "CodecNotApplied");
  };
  const std::string topk = "{policy: uniform, codec: topk, ratio: 100}";
  EXPECT_THAT(cut("lm_head", "loss", topk),
              AllOf(HasSubstr(" to stage 1 as fp16 instead of topk (spec.compression.codec): a loss reads it")));
  EXPECT_EQ(cut("lm_head", "loss", "{policy: uniform, codec: fp16}"), "");
  EXPECT_EQ(cut("lm_head", "loss", "{policy: none, codec: int8}"), "") << "nothing is compressed";
  EXPECT_EQ(cut("block.1.ln_1", "block.2.ln_1", topk), "");
}

TEST(PlanWarningsTest, OfOneDeviceThereAreNone) {
  const auto workload = Resolve({"spec.strategy={stages: 1}"});
  EXPECT_THAT(PlanOf(*workload, OnTopology(*workload)).warnings, IsEmpty());
}

TEST(PlanWarningsTest, ALinkFarSlowerThanTheWayBackIsDegraded) {
  const auto workload = Resolve();
  EXPECT_EQ(MessagesOf(PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"}), "LinkDegraded"), "");
  const std::string one_way = absl::StrReplaceAll(
      kTwoSites,
      {{"{from: paris, to: tokyo, bandwidth: 20Mbit, latency: 40ms, symmetric: true}",
        "{from: paris, to: tokyo, bandwidth: 2Mbit, latency: 40ms}, {from: tokyo, to: paris, bandwidth: 20Mbit, latency: 40ms}"}});
  const std::string messages = MessagesOf(PlanOf(*workload, OnTopology(*workload, one_way), {.strategy = "equal-ops"}), "LinkDegraded");
  EXPECT_THAT(messages, HasSubstr("carries 250 kB/s, 10 times less than the 2.5 MB/s of the way back"));
  EXPECT_THAT(messages, HasSubstr("-> tokyo-0"));
}

TEST(PlanWarningsTest, DevicesWaitNamesWhatTheyWaitFor) {
  const auto workload = Resolve({"spec.model.config.vocabSize=50000"});
  const std::string slow = absl::StrReplaceAll(kTwoSites, {{"20Mbit", "1Mbit"}});
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload, slow), {.strategy = "equal-ops"});
  EXPECT_THAT(MessagesOf(plan, "DevicesWait"), HasSubstr("the tied gradients of transformer.wte.weight"));
}

}  // namespace
}  // namespace fusionllm::planning
