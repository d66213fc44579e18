// What the plan of a workload says of its links: codecs, bytes, times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/autodiff/activation_kinds.h"
#include "lib/compression/codec.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/expected_loss.h"
#include "lib/planning/testing/three_devices.h"
#include "lib/runtime/edge_codec.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// From stage `src` to stage `dst`.
plan::Link LinkBetween(const plan::Plan& plan, int src, int dst) {
  for (const plan::Link& link : plan.links) {
    if (link.src_stage == src && link.dst_stage == dst) return link;
  }
  ADD_FAILURE() << "no link from stage " << src << " to " << dst;
  return {};
}

TEST(PlanLinks, OnlyTheSlowLinkIsCompressed) {
  // All three devices, in the order that crosses the slow link once.
  const auto workload = Resolve({"spec.compression={policy: adatopk, ratio: 100}", "spec.training.microBatchSize=4"});
  Profiles profiles = OnTopology(*workload);
  for (auto& [signature, op] : profiles.devices[0].ops) op.seconds = 2e-5;
  for (wire::DeviceProfile& device : profiles.devices) device.ops = profiles.devices[0].ops;
  const plan::Plan plan = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  ASSERT_EQ(plan.stages.size(), 3);
  EXPECT_EQ(plan.CodecBetween(0, 1), "fp32");
  EXPECT_NE(plan.CodecBetween(1, 2), "fp32");
  for (const plan::Link& link : plan.links) {
    if (link.codec == "fp32") {
      EXPECT_NEAR(link.ratio, 1, 0.01);
    } else if (link.backward) {
      EXPECT_GT(link.ratio, 1.5);
    }
  }
}

// What the ladder knows reaches the user: why a codec, what it costs, and where structure would do better.
TEST(PlanLinks, TheReasonForACodecIsExplained) {
  const auto workload = Resolve({"spec.compression={policy: adatopk, ratio: 100, maxLossIncrease: 100}", "spec.training.microBatchSize=4"});
  Profiles profiles = OnTopology(*workload);
  for (auto& [signature, op] : profiles.devices[0].ops) op.seconds = 1e-7;
  for (wire::DeviceProfile& device : profiles.devices) device.ops = profiles.devices[0].ops;
  const plan::Plan plan = PlanOf(*workload, profiles, {.strategy = "equal-ops", .explain = true});
  ASSERT_EQ(plan.stages.size(), 3);
  std::string reason;
  for (const plan::Link& link : plan.links) {
    if (link.src_stage == 1 && link.dst_stage == 2) reason = link.reason;
    EXPECT_EQ(link.reason.empty(), link.backward) << "one of the two directions has it";
  }
  EXPECT_THAT(reason, AllOf(HasSubstr("uncompressed it would take"), HasSubstr("expected loss +"), HasSubstr("a trained bottleneck")));
  EXPECT_THAT(plan.explain, Contains(HasSubstr(absl::StrCat("Codec: ", reason))));
}

TEST(PlanLinks, UniformPolicyUsesOneCodecExceptForLabelOnlyLinks) {
  for (const std::string codec : {"auto", "int8"}) {
    const auto workload = Resolve({absl::StrCat("spec.compression={policy: uniform, codec: ", codec, "}")});
    Profiles profiles = OnTopology(*workload);
    for (wire::DeviceProfile& device : profiles.devices) {
      for (auto& [signature, op] : device.ops) op.seconds = 2e-5;
    }
    const plan::Plan plan = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
    ASSERT_EQ(plan.stages.size(), 3);
    EXPECT_NE(plan.CodecBetween(0, 1), "fp32") << codec;
    EXPECT_EQ(plan.CodecBetween(0, 1), plan.CodecBetween(1, 2)) << codec;
    EXPECT_EQ(LinkBetween(plan, 0, 2).codec, "fp32") << codec;
  }
}

// Pinned so that the loss alone is behind the slow link.
constexpr char kLossAlone[] = "spec.strategy={stages: 2, pins: [{ops: loss, device: tokyo-0}, {ops: lm_head, device: paris-0}]}";

TEST(PlanLinks, LogitsTravelIn16BitsWhateverThePolicyAsksFor) {
  for (const std::string policy :
       {"policy: adatopk", "policy: uniform, codec: topk, ratio: 30", "policy: uniform, codec: int8", "policy: uniform"}) {
    const auto workload = Resolve({absl::StrCat("spec.compression={", policy, "}"), kLossAlone});
    Profiles profiles = OnTopology(*workload);
    for (wire::DeviceProfile& device : profiles.devices) {
      for (auto& [signature, op] : device.ops) op.seconds = 1e-7;  // nothing hides the link
    }
    const plan::Plan plan = PlanOf(*workload, profiles);
    const plan::Link link = LinkBetween(plan, 0, 1);
    EXPECT_EQ(link.codec, "fp16") << policy;
    EXPECT_THAT(link.reason, HasSubstr("what a loss reads")) << policy;
    EXPECT_EQ(link.loss_cost, 0) << policy;
    EXPECT_THAT(link.value_kinds, UnorderedElementsAre("data", "loss_input")) << policy;
  }
}

// The messages of the runtime for every float that the link carries, both ways.
TEST(PlanLinks, BytesAreThoseThatTheEdgesOfTheRunMake) {
  for (const std::string policy : {"policy: adatopk, maxLossIncrease: 10", "policy: uniform, codec: topk, ratio: 30",
                                   "policy: uniform, codec: int4", "policy: none"}) {
    for (const char* pins : {kLossAlone,
                             "spec.strategy={stages: 2, pins: [{ops: block.1.mlp.gelu, device: paris-0}, {ops: block.1.mlp.c_proj, "
                             "device: tokyo-0}]}"}) {
      const auto workload = Resolve({absl::StrCat("spec.compression={", policy, "}"), "spec.model.config.tieWeights=false", pins});
      const plan::Plan plan = PlanOf(*workload, OnTopology(*workload));
      const plan::Link there = LinkBetween(plan, 0, 1), back = LinkBetween(plan, 1, 0);
      const opdag::Graph& graph = workload->training.graph;
      const runtime::LinkCodecs codecs = {{{0, 1}, *compression::ParseCodecSpec(there.codec)}};
      const std::vector<opdag::ActivationKind> kinds = autodiff::ActivationKindsOf(workload->training);
      const auto upstream = runtime::CompressedEdgeCodec(0, codecs, runtime::kComparisonPeriod, nullptr, kinds);
      const auto downstream = runtime::CompressedEdgeCodec(1, codecs, runtime::kComparisonPeriod, nullptr, kinds);
      int64_t forward = 0, backward = 0;
      for (opdag::ValueId v = 0; v < static_cast<opdag::ValueId>(graph.values().size()); ++v) {
        if (std::find(there.values.begin(), there.values.end(), graph.value(v).name) == there.values.end()) continue;
        tensor::Tensor value(graph.value(v).type);
        if (value.type().dtype == tensor::DType::kI32) {
          std::fill_n(value.as<int32_t>(), value.type().elements(), 63);
        } else {
          for (int64_t i = 0; i < value.type().elements(); ++i) value.f32()[i] = static_cast<float>(i % 97) - 48;
        }
        const auto message = upstream->Encode({.value = v, .peer = 1, .of = v}, 0, value.view(), true);
        ASSERT_TRUE(message.ok()) << message.status();
        forward += static_cast<int64_t>(message->size());
        if (kinds[v] == opdag::ActivationKind::kData) continue;
        ASSERT_TRUE(downstream->Decode({.value = v, .peer = 0, .of = v}, 0, *message, value.view()).ok());
        const auto answer =
            downstream->Encode({.value = workload->training.gradient_of[v], .peer = 0, .gradient = true, .of = v}, 0, value.view(), true);
        ASSERT_TRUE(answer.ok()) << answer.status();
        backward += static_cast<int64_t>(answer->size());
      }
      EXPECT_EQ(there.bytes, workload->micro_batches * forward) << policy << " " << there.codec;
      EXPECT_EQ(back.bytes, workload->micro_batches * backward) << policy << " " << there.codec;
    }
  }
}

std::string LossWarning(const plan::Plan& plan) {
  for (const plan::Warning& warning : plan.warnings) {
    if (warning.reason == kLossAboveLimit) return warning.message;
  }
  return "";
}

TEST(PlanLinks, LossCostStaysWithinTheBudgetOfTheJob) {
  const auto plan_with = [](const std::string& compression) {
    const auto workload =
        Resolve({absl::StrCat("spec.compression={", compression, "}"), "spec.strategy.stages=3", "spec.training.steps=300"});
    Profiles profiles = OnTopology(*workload);
    for (wire::DeviceProfile& device : profiles.devices) {
      for (auto& [signature, op] : device.ops) op.seconds = 1e-7;
    }
    return PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  };
  const auto sum = [](const plan::Plan& plan) {
    double total = 0;
    for (const plan::Link& link : plan.links) total += link.loss_cost;
    for (const plan::TiedParameter& tied : plan.tied) total += tied.loss_cost;
    return total;
  };
  const plan::Plan capped = plan_with("policy: adatopk"), free = plan_with("policy: adatopk, maxLossIncrease: 100");
  EXPECT_LE(capped.loss_cost, 0.05 * (1 + 1e-9));
  EXPECT_GT(free.loss_cost, 0.05);
  EXPECT_DOUBLE_EQ(capped.loss_cost, sum(capped));
  EXPECT_DOUBLE_EQ(free.loss_cost, sum(free));
  EXPECT_THAT(free.loss_cost_source, AllOf(HasSubstr("after 300 steps"), HasSubstr("docs/results/loss-cost.md")));
  EXPECT_EQ(LossWarning(free), "");
  std::string reasons;
  for (const plan::Link& link : capped.links) reasons += link.reason;
  EXPECT_THAT(reasons,
              HasSubstr("maxLossIncrease of 0.05 nats allows over all links, 0.004 of it kept for tied gradients, and does not hide it"));
  // A codec that is asked for by name is used, and what that means is said.
  const plan::Plan named = plan_with("policy: uniform, codec: topk, ratio: 30");
  EXPECT_EQ(named.CodecBetween(0, 1), "topk@30:int8");
  EXPECT_GT(named.loss_cost, 0.05);
  EXPECT_THAT(LossWarning(named), HasSubstr("more than spec.compression.maxLossIncrease of 0.05"));
  EXPECT_EQ(plan_with("policy: none").loss_cost_source, "");
}

TEST(PlanLinks, TopKValuesAreThoseTheJobAsksFor) {
  const std::pair<std::string, std::string> wanted[] = {{"", "topk@20:int8"},
                                                        {", topkValues: int8", "topk@20:int8"},
                                                        {", topkValues: fp16", "topk@20:fp16"},
                                                        {", topkValues: int4", "topk@20:int4"},
                                                        {", topkValues: auto", "topk@20:int8"}};
  for (const auto& [values, codec] : wanted) {
    const auto workload = Resolve({absl::StrCat("spec.compression={policy: uniform, codec: topk, ratio: 20", values, "}")});
    const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
    ASSERT_EQ(plan.stages.size(), 3);
    EXPECT_EQ(plan.CodecBetween(0, 1), codec);
    EXPECT_EQ(plan.CodecBetween(1, 2), codec);
  }
}

TEST(PlanLinks, TheLadderMayShrinkALinkByInt4WhateverTheRatioOfTheJob) {
  const auto most = [](job::Codec codec, double ratio, double budget = 100) {
    const job::Spec job_spec{
        .compression = {.policy = job::CompressionPolicy::kAdatopk, .codec = codec, .ratio = ratio, .max_loss_increase = budget}};
    return CompressionPolicy(PolicyOf(job_spec), {}).MaxRatio();
  };
  EXPECT_GT(most(job::Codec(), 1), 4.9);
  EXPECT_GT(most(job::Codec(), 100), 100);
  EXPECT_LT(most(job::Codec(), 100, 0.05), 50) << "no plan may spend more of the loss";
  EXPECT_LT(most(job::Codec{compression::CodecKind::kInt8}, 100), 4.1);
  EXPECT_LT(most(job::Codec{compression::CodecKind::kFp16}, 1), 2.1);
}

TEST(PlanLinks, TiedEmbeddingsAreExchanged) {
  const auto workload = Resolve();
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  ASSERT_EQ(plan.tied.size(), 1);
  EXPECT_EQ(plan.tied[0].parameter, "transformer.wte.weight");
  EXPECT_THAT(plan.tied[0].stages, ElementsAre(0, 2));
  EXPECT_EQ(plan.tied[0].bytes, 64 * 32 * 4);
  EXPECT_EQ(plan.tied[0].wire_bytes, 64 * 32 * 4 + 24) << "as many tokens in a step as there are";
  // The labels travel on the same link from the first stage to the last; nothing but the tied gradient comes back.
  for (const bool back : {false, true}) {
    const int src = back ? 2 : 0, dst = back ? 0 : 2;
    const plan::Link link = LinkBetween(plan, src, dst);
    EXPECT_EQ(link.tied_bytes, plan.tied[0].wire_bytes);
    EXPECT_EQ(link.backward, back);
    EXPECT_EQ(link.bytes == link.tied_bytes, back);
    EXPECT_GT(link.seconds, 0.04) << "latency is met on the way";
  }
}

TEST(PlanLinks, Bf16ActivationsHalveDenseBytesOnly) {
  for (const std::string codec : {"fp32", "int8"}) {
    const auto plan_in = [&](const std::string& precision) {
      const auto workload = Resolve({"spec.model.config.tieWeights=false", "spec.training.precision=" + precision,
                                     absl::StrCat("spec.compression={policy: uniform, codec: ", codec, "}")});
      return PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
    };
    const plan::Plan in_fp32 = plan_in("fp32"), in_bf16 = plan_in("bf16");
    ASSERT_EQ(in_fp32.stages.size(), 3);
    ASSERT_EQ(in_bf16.stages.size(), 3);
    const plan::Link wide = LinkBetween(in_fp32, 1, 2), narrow = LinkBetween(in_bf16, 1, 2);
    if (codec == "fp32") {
      EXPECT_LT(narrow.bytes, 0.52 * static_cast<double>(wide.bytes));
      EXPECT_NEAR(narrow.ratio, 1, 0.01);
    } else {
      EXPECT_EQ(narrow.bytes, wide.bytes);
      EXPECT_NEAR(narrow.ratio, wide.ratio / 2, 0.01);
    }
  }
}

TEST(PlanLinks, LabelsArePlannedAsTheFewBytesThatTheyTravelAs) {
  const auto workload = Resolve({"spec.model.config.tieWeights=false"});
  const plan::Plan plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  ASSERT_EQ(plan.stages.size(), 3);
  const plan::Link labels = LinkBetween(plan, 0, 2);
  std::vector<std::byte> encoded;
  const std::vector<int32_t> ids(workload->micro_batch_size * workload->targets_per_sample, 63);
  ASSERT_TRUE(compression::EncodeIntegers(ids, &encoded).ok());
  EXPECT_EQ(labels.bytes, workload->micro_batches * static_cast<int64_t>(encoded.size()));
  EXPECT_EQ(labels.ratio, 1) << "nothing is lost or left out";
}

}  // namespace
}  // namespace fusionllm::planning
