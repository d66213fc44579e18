#include "lib/planning/plan_alternatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/planning/testing/three_devices.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const PlanOptions kWeighed = {.alternatives = true};

std::string StagesWarning(const plan::Plan& plan) {
  for (const plan::Warning& warning : plan.warnings) {
    if (warning.reason == "OtherStageCountFaster") return warning.message;
  }
  return "";
}

TEST(PlanAlternativesTest, StagesThatTheJobAsksForAreWarnedOfWhereOthersAreMuchFaster) {
  const std::string slow = absl::StrReplaceAll(kTwoSites, {{"20Mbit", "50kbit"}, {"1Gbit", "50kbit"}});
  const auto asked = Resolve({"spec.strategy.stages=3"}), free = Resolve();
  const plan::Plan plan = PlanOf(*asked, OnTopology(*asked, slow), kWeighed), fastest = PlanOf(*free, OnTopology(*free, slow), kWeighed);
  ASSERT_EQ(fastest.stages.size(), 1);
  EXPECT_THAT(
      StagesWarning(plan),
      AllOf(HasSubstr("spec.strategy.stages: 3 asks for a step of "),
            HasSubstr(absl::StrCat("it would take ", scheduler::DurationText(fastest.predicted_step_seconds), ", in 1 stage on "))));
  EXPECT_EQ(StagesWarning(fastest), "");
}

TEST(PlanAlternativesTest, StagesThatAreNearlyTheFastestAreNotWarnedOf) {
  const auto workload = Resolve({"spec.strategy.stages=3"});
  EXPECT_EQ(StagesWarning(PlanOf(*workload, OnTopology(*workload), kWeighed)), "");
}

// GPT-2 XL on cards that are known by their figures.
plan::Plan PlanXl(const std::string& training, const std::string& sites, estimator::Arithmetic arithmetic,
                  const std::vector<std::string>& overrides, const PlanOptions& options) {
  const auto job = job::ParseFusionJob(
      absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
                   "  model: {family: gpt2, preset: xl}\n  data: {kind: tokens, path: [x.bin]}\n  training: {steps: 50000, ",
                   training, ", sequenceLength: 1024}\n"),
      "job.yaml", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  const auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  const auto topology = job::ParseTopology(
      absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: cards}\nspec:\n  sites:\n", sites), "t.yaml");
  EXPECT_TRUE(topology.ok()) << topology.status();
  const auto profiles = ProfilesFromTopology(*topology, {}, 1, arithmetic);
  EXPECT_TRUE(profiles.ok()) << profiles.status();
  const auto answer = PlanWorkload(**workload, *profiles, options);
  EXPECT_TRUE(answer.ok()) << answer.status();
  return std::get<plan::Plan>(*answer);
}

std::string SiteOfFourCards(absl::string_view internal) {
  return absl::StrCat("  - {name: s, internal: {bandwidth: ", internal,
                      ", latency: 0.01ms}, devices: [{name: h0, profile: nvidia-h100-sxm}, {name: h1, profile: nvidia-h100-sxm}, "
                      "{name: h2, profile: nvidia-h100-sxm}, {name: h3, profile: nvidia-h100-sxm}]}\n");
}

// On four cards that hold a deep pipeline.
plan::Plan OnFourCards(const std::vector<std::string>& overrides, absl::string_view internal = "100Gbit") {
  return PlanXl("globalBatchSize: 512, microBatchSize: 8, precision: bf16", SiteOfFourCards(internal), estimator::Arithmetic::kBf16,
                overrides, {.search_budget = scheduler::kQuickSearchBudget, .alternatives = true});
}

// Two sites, of which the second is no use: a link of 100 Mbit/s that top-k makes look cheap.
TEST(PlanAlternativesTest, DevicesOfAnotherSiteDoNotMakeAPlanSlower) {
  const std::string sites =
      absl::StrCat(SiteOfFourCards("40Gbit"),
                   "  - {name: lab, devices: [{name: r0, profile: nvidia-rtx-4090}, {name: r1, profile: nvidia-rtx-4090}]}\n"
                   "  links:\n  - {from: s, to: lab, bandwidth: 100Mbit, latency: 30ms, symmetric: true}\n");
  const auto plan_of = [&](std::vector<std::string> overrides) {
    overrides.emplace_back("spec.compression.policy=adatopk");
    return PlanXl("globalBatchSize: 64, microBatchSize: 4, gradientClipNorm: 1", sites, estimator::Arithmetic::kFp32, overrides, {});
  };
  const plan::Plan all = plan_of({}), alone = plan_of({"spec.strategy.exclude=[r0, r1]"});
  EXPECT_LE(all.predicted_step_seconds, alone.predicted_step_seconds * (1 + 1e-9));
  EXPECT_LE(all.loss_cost, alone.loss_cost);
}

// Gradients of tied parameters are compressed with one pipeline alone, which makes it the faster choice here.
TEST(PlanAlternativesTest, AsManyReplicasAsThePlannerLikesAreNeverSlowerThanOne) {
  const std::vector<std::string> slow_links = {"spec.compression.policy=adatopk", "spec.training.globalBatchSize=64",
                                               "spec.training.microBatchSize=4", "spec.training.gradientClipNorm=1"};
  std::vector<std::string> free = slow_links;
  free.emplace_back("spec.strategy.replicas=auto");
  const plan::Plan one = OnFourCards(slow_links, "10Gbit"), many = OnFourCards(free, "10Gbit");
  EXPECT_LE(many.predicted_step_seconds, one.predicted_step_seconds);
  EXPECT_EQ(many.replicas, 1);
  EXPECT_LE(many.lower_bound_seconds, many.predicted_step_seconds);
}

int64_t LargestStage(const plan::Plan& plan) {
  int64_t largest = 0;
  for (const plan::Stage& stage : plan.stages) largest = std::max(largest, stage.memory_bytes);
  return largest;
}

TEST(PlanAlternativesTest, DepthThatTakesMuchMemoryByChoiceHasThePriceOfLess) {
  const plan::Plan deep = OnFourCards({"spec.strategy.stages=4"});
  ASSERT_GT(deep.in_flight, 4);
  ASSERT_TRUE(deep.fewer_in_flight.has_value());
  EXPECT_EQ(deep.fewer_in_flight->in_flight, 4);
  EXPECT_LT(deep.fewer_in_flight->memory_bytes, LargestStage(deep) / 2);
  EXPECT_GT(deep.fewer_in_flight->predicted_step_seconds, deep.predicted_step_seconds);

  // GPipe has all micro-batches of a step in flight, whatever the job allows.
  const plan::Plan gpipe = OnFourCards({"spec.strategy={stages: 4, pipelineSchedule: gpipe}", "spec.training.globalBatchSize=80"});
  ASSERT_EQ(gpipe.in_flight, 10);
  ASSERT_GT(LargestStage(gpipe), LargestStage(deep) / 2) << "much of a card";
  EXPECT_FALSE(gpipe.fewer_in_flight.has_value());

  const plan::Plan shallow = OnFourCards({"spec.strategy={stages: 4, inFlight: 4}"});
  EXPECT_FALSE(shallow.fewer_in_flight.has_value());
  EXPECT_NEAR(shallow.predicted_step_seconds, deep.fewer_in_flight->predicted_step_seconds, 0.02 * shallow.predicted_step_seconds);
  EXPECT_NEAR(static_cast<double>(LargestStage(shallow)), static_cast<double>(deep.fewer_in_flight->memory_bytes),
              0.1 * static_cast<double>(LargestStage(shallow)));
}

}  // namespace
}  // namespace fusionllm::planning
