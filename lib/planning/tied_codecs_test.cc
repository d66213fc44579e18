#include "lib/planning/tied_codecs.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/planning/testing/three_devices.h"

namespace fusionllm::planning {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAdaTopK[] = "spec.compression.policy=adatopk";

// The tied parameter of a plan of two stages, one at each site, with ops that take hardly any time.
plan::TiedParameter TiedOf(std::vector<std::string> settings, double op_seconds = 1e-5) {
  settings.insert(settings.end(), {"spec.strategy.stages=2", "spec.strategy.exclude=[paris-1]"});
  const auto workload = Resolve(settings);
  // Measuring an embedding of 50,000 rows takes seconds; times are overwritten below.
  static auto& measured = *new std::map<int64_t, Profiles>;
  const int64_t vocabulary = workload->job.spec.model.config.vocab_size.value_or(0);
  if (!measured.contains(vocabulary)) measured[vocabulary] = OnTopology(*workload);
  Profiles profiles = measured[vocabulary];
  for (wire::DeviceProfile& device : profiles.devices) {
    for (auto& [signature, op] : device.ops) op.seconds = op_seconds;
  }
  const plan::Plan plan = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  EXPECT_EQ(plan.tied.size(), 1u);
  return plan.tied.empty() ? plan::TiedParameter{} : plan.tied[0];
}

std::vector<std::string> CodecsOf(const std::vector<std::string>& settings) {
  const auto workload = Resolve(settings);
  const auto request = MakeRequest(*workload, OnTopology(*workload), {}, runtime::Recompute::kNone);
  EXPECT_TRUE(request.ok()) << request.status();
  std::vector<std::string> codecs;
  for (const scheduler::TiedCodec& codec : request->request.tied.at(0).codecs) codecs.push_back(codec.codec);
  return codecs;
}

TEST(TiedCodecsTest, PolicyAndLimitSayWhatThereIsToChooseFrom) {
  EXPECT_THAT(CodecsOf({}), ElementsAre("fp32"));
  EXPECT_THAT(CodecsOf({"spec.compression.tiedGradients=int4"}), ElementsAre("fp32")) << "the policy is none";
  EXPECT_THAT(CodecsOf({kAdaTopK}), ElementsAre("fp32", "bf16", "int8", "int4"));
  EXPECT_THAT(CodecsOf({kAdaTopK, "spec.compression.limit=int8"}), ElementsAre("fp32", "bf16", "int8"));
  EXPECT_THAT(CodecsOf({kAdaTopK, "spec.compression.limit=fp16"}), ElementsAre("fp32"));
  EXPECT_THAT(CodecsOf({kAdaTopK, "spec.compression.codec=fp32"}), ElementsAre("fp32"));
  EXPECT_THAT(CodecsOf({kAdaTopK, "spec.training.gradientClipNorm=0"}), ElementsAre("fp32"));
  EXPECT_THAT(CodecsOf({kAdaTopK, "spec.training.gradientClipNorm=0", "spec.compression.tiedGradients=int8"}), ElementsAre("int8"));
  EXPECT_THAT(CodecsOf({kAdaTopK, "spec.compression.tiedGradients=int8"}), ElementsAre("int8"));
  EXPECT_THAT(CodecsOf({"spec.compression={policy: uniform, codec: int8}"}), ElementsAre("fp32"));
  EXPECT_THAT(CodecsOf({"spec.compression={policy: uniform, codec: int8, tiedGradients: int4}"}), ElementsAre("int4"));
  EXPECT_THAT(CodecsOf({kAdaTopK, "spec.strategy.replicas=2", "spec.compression.tiedGradients=int8"}), ElementsAre("fp32"));
}

TEST(TiedCodecsTest, APlanSaysWhatItExchangesAndWhy) {
  const plan::TiedParameter exact = TiedOf({});
  EXPECT_EQ(exact.codec, "fp32");
  EXPECT_EQ(exact.loss_cost, 0);
  EXPECT_THAT(exact.reason, HasSubstr("spec.compression.policy is none"));
  const plan::TiedParameter asked = TiedOf({kAdaTopK, "spec.compression.tiedGradients=int8"});
  EXPECT_EQ(asked.codec, "int8");
  EXPECT_EQ(TiedOf({kAdaTopK, "spec.compression.tiedGradients=int4"}).loss_cost, TiedLossIncrease(compression::CodecKind::kInt4));
  EXPECT_EQ(asked.bytes, exact.bytes) << "dense";
  EXPECT_LT(asked.wire_bytes * 3, exact.wire_bytes);
}

// 50,000 rows of 32 numbers are 6.4 MB, 2.56 s at 20 Mbit/s.
TEST(TiedCodecsTest, ASlowLinkMakesThePlannerCompressAndALongStepDoesNot) {
  const std::string large = "spec.model.config.vocabSize=50000";
  const plan::TiedParameter short_step = TiedOf({kAdaTopK, large});
  EXPECT_NE(short_step.codec, "fp32");
  EXPECT_THAT(short_step.reason, HasSubstr("instead of"));
  const plan::TiedParameter long_step = TiedOf({kAdaTopK, large}, 10);
  EXPECT_EQ(long_step.codec, "fp32") << "2.56 s of an hour are not worth a loss";
  EXPECT_THAT(long_step.reason, HasSubstr("would not pay"));
}

TEST(TiedCodecsTest, LinksLeaveTiedGradientsTheirShareOfTheLoss) {
  const auto budget = [](const std::vector<std::string>& settings) { return LinkPolicyOf(*Resolve(settings)).LinkLossBudget(); };
  const double int4 = TiedLossIncrease(compression::CodecKind::kInt4);
  EXPECT_DOUBLE_EQ(budget({kAdaTopK}), 0.05 - int4);
  EXPECT_DOUBLE_EQ(budget({kAdaTopK, "spec.compression.maxLossIncrease=0.002"}), 0.001) << "half of it at most";
  EXPECT_EQ(budget({kAdaTopK, "spec.compression.tiedGradients=int8"}), 0.05);
  EXPECT_EQ(budget({kAdaTopK, "spec.model.config.tieWeights=false"}), 0.05);
  // The link takes what its budget allows, and the exchange still gets its best codec.
  const plan::TiedParameter tied = TiedOf({kAdaTopK, "spec.model.config.vocabSize=50000"});
  EXPECT_EQ(tied.codec, "int4");
}

TEST(TiedCodecsTest, AnEmbeddingSendsNoMoreRowsThanTokens) {
  const auto workload = Resolve({"spec.model.config.vocabSize=50000"});
  const auto request = MakeRequest(*workload, OnTopology(*workload), {}, runtime::Recompute::kNone);
  ASSERT_TRUE(request.ok()) << request.status();
  const scheduler::TiedParameter& tied = request->request.tied.at(0);
  ASSERT_EQ(tied.codecs.at(0).bytes.size(), 2u);
  EXPECT_EQ(tied.codecs[0].bytes[0], 16 * 16 * 32 * 4 + 50'000 / 8 + 24) << "256 tokens in a step";
  EXPECT_EQ(tied.codecs[0].bytes[1], 50'000 * 32 * 4 + 24) << "a head has a gradient for every token";
  EXPECT_EQ(tied.MinBytes(), tied.codecs[0].bytes[0]);
}

TEST(TiedCodecsTest, WhatASiteMaySendIsAReasonToCompress) {
  const std::string large = "spec.model.config.vocabSize=50000";
  const plan::TiedParameter free = TiedOf({kAdaTopK, large}, 10);
  ASSERT_EQ(free.codec, "fp32");
  const plan::TiedParameter kept_within = TiedOf({kAdaTopK, large, "spec.placement.maxEgressBytesPerStep=3000000"}, 10);
  EXPECT_EQ(kept_within.codec, "int8");
  EXPECT_THAT(kept_within.reason, HasSubstr("maxEgressBytesPerStep"));
}

}  // namespace
}  // namespace fusionllm::planning
