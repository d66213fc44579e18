// What a plan says first: rates, bytes between sites, what limits the step.
#include "lib/planning/plan_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/planning/testing/three_devices.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

int64_t TrainedParameters(const workload::Workload& workload) {
  int64_t total = 0;
  for (const opdag::Parameter& parameter : workload.training.graph.parameters())
    total += parameter.trainable ? parameter.type.elements() : 0;
  return total;
}

const char* SiteOf(const std::string& device) { return device.starts_with("paris") ? "paris" : "tokyo"; }

TEST(PlanFigures, FollowFromTheStepAndTheLinks) {
  const auto workload = Resolve();
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  ASSERT_EQ(plan.stages.size(), 3);
  EXPECT_EQ(plan.unit, "tokens");
  EXPECT_EQ(plan.steps, 5);
  EXPECT_EQ(plan.tokens_per_step, 16 * 16);
  EXPECT_EQ(plan.parameters, TrainedParameters(*workload));
  EXPECT_NEAR(plan.tokens_per_second * plan.predicted_step_seconds, 16 * 16, 1e-6);
  EXPECT_NEAR(plan.samples_per_second * plan.predicted_step_seconds, 16, 1e-6);
  int64_t between = 0;
  for (const plan::Link& link : plan.links) {
    if (std::string(SiteOf(link.src)) != SiteOf(link.dst)) between += link.bytes;
  }
  EXPECT_GT(between, 0);
  EXPECT_EQ(plan.site_bytes, between);
  EXPECT_THAT(plan.bottleneck, HasSubstr("10% less time"));
  EXPECT_EQ(plan.loss_cost, 0);
  EXPECT_THAT(plan.loss_cost_source, IsEmpty());
  for (const plan::Stage& stage : plan.stages) EXPECT_EQ(stage.device_memory_bytes, int64_t{1} << 30);
  ASSERT_EQ(plan.tied.size(), 1);
  EXPECT_GT(plan.tied[0].seconds, 0.04) << "over the slow line";
}

TEST(PlanFigures, CodecsThatCostLossAddUpWithTheirSource) {
  const auto workload = Resolve({"spec.compression={policy: uniform, codec: topk, ratio: 20}"});
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  double cost = 0;
  for (const plan::Link& link : plan.links) cost += link.loss_cost;
  EXPECT_GT(cost, 0);
  EXPECT_GE(plan.loss_cost, cost * (1 - 1e-12));
  EXPECT_NE(plan.loss_cost_source, "");
}

TEST(PlanFigures, LinksSayWhatTypeTheyCarry) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const auto workload = Resolve({"spec.training.precision=" + precision, "spec.model.config.tieWeights=false"});
    const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
    ASSERT_EQ(plan.stages.size(), 3);
    for (const plan::Link& link : plan.links) {
      const bool neighbours = std::abs(link.src_stage - link.dst_stage) == 1;
      EXPECT_EQ(link.dtype, neighbours ? precision : "ids") << link.src << " -> " << link.dst;
    }
  }
}

TEST(PlanFigures, ALinkLimitSuggestsCompressionOnlyWithoutIt) {
  const std::string slow = absl::StrReplaceAll(kTwoSites, {{"20Mbit", "1Mbit"}});
  const auto bottleneck = [&](const std::string& policy) {
    const auto workload = Resolve({"spec.model.config.tieWeights=false", "spec.compression.policy=" + policy});
    return PlanOf(*workload, OnTopology(*workload, slow), {.strategy = "equal-ops"}).bottleneck;
  };
  EXPECT_THAT(bottleneck("none"),
              AllOf(HasSubstr("The step is limited by the link"),
                    HasSubstr("What would help: spec.compression.policy: adatopk (codecs where they pay), or a faster link.")));
  EXPECT_THAT(bottleneck("adatopk"), Not(HasSubstr("spec.compression.policy")));
}

TEST(PlanFigures, ALinkThatTiedGradientsKeepBusySuggestsAnUntiedHead) {
  const std::string slow = absl::StrReplaceAll(kTwoSites, {{"20Mbit", "1Mbit"}, {"40ms", "1ms"}});
  const auto workload =
      Resolve({"spec.model.config.vocabSize=400",
               "spec.strategy={stages: 2, pins: [{ops: block.1.ln_1, device: paris-0}, {ops: block.2.ln_1, device: tokyo-0}]}"});
  Profiles profiles = OnTopology(*workload, slow);
  for (wire::DeviceProfile& device : profiles.devices) {
    for (auto& [signature, op] : device.ops) op.seconds = 1e-6;
  }
  const std::string bottleneck = PlanOf(*workload, profiles).bottleneck;
  EXPECT_THAT(bottleneck, AllOf(HasSubstr("The step is limited by the link"), HasSubstr("tied gradients"),
                                HasSubstr("What would help: spec.model.config.tieWeights: false (the head then has weights of its own), or "
                                          "spec.compression.policy: adatopk")));
}

TEST(PlanFigures, OfReplicasAreThoseOfAllPipelinesTogether) {
  const auto workload = Resolve({"spec.strategy.replicas=2"});
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload));
  ASSERT_EQ(plan.replicas, 2);
  EXPECT_NEAR(plan.tokens_per_second * plan.predicted_step_seconds, 16 * 16, 1e-6);
  int64_t between = 0;
  for (const plan::Link& link : plan.links) {
    if (std::string(SiteOf(link.src)) != SiteOf(link.dst)) between += link.bytes;
  }
  EXPECT_GE(plan.site_bytes, between);
  EXPECT_THAT(plan.bottleneck, HasSubstr("10% less time"));
}

}  // namespace
}  // namespace fusionllm::planning
