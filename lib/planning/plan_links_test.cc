// What the plan of a workload says of its links: codecs, bytes, times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/compression/codec.h"
#include "lib/planning/codec_adapter.h"
#include "lib/planning/testing/three_devices.h"

namespace fusionllm::planning {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// From stage `src` to stage `dst`.
wire::PlanLink LinkBetween(const wire::PlanDocument& plan, int src, int dst) {
  for (const wire::PlanLink& link : plan.links) {
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
  const wire::PlanDocument plan = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
  ASSERT_EQ(plan.stages.size(), 3);
  EXPECT_EQ(plan.CodecBetween(0, 1), "fp32");
  EXPECT_NE(plan.CodecBetween(1, 2), "fp32");
  for (const wire::PlanLink& link : plan.links) {
    if (link.codec == "fp32") {
      EXPECT_NEAR(link.ratio, 1, 0.01);
    } else if (link.backward) {
      EXPECT_GT(link.ratio, 1.5);
    }
  }
}

// What the ladder knows reaches the user: why a codec, what it costs, and where structure would do better.
TEST(PlanLinks, TheReasonForACodecIsExplained) {
  const auto workload = Resolve({"spec.compression={policy: adatopk, ratio: 100}", "spec.training.microBatchSize=4"});
  Profiles profiles = OnTopology(*workload);
  for (auto& [signature, op] : profiles.devices[0].ops) op.seconds = 1e-7;
  for (wire::DeviceProfile& device : profiles.devices) device.ops = profiles.devices[0].ops;
  const wire::PlanDocument plan = PlanOf(*workload, profiles, {.strategy = "equal-ops", .explain = true});
  ASSERT_EQ(plan.stages.size(), 3);
  std::string reason;
  for (const wire::PlanLink& link : plan.links) {
    if (link.src_stage == 1 && link.dst_stage == 2) reason = link.reason;
    EXPECT_EQ(link.reason.empty(), link.backward) << "one of the two directions has it";
  }
  EXPECT_THAT(reason, AllOf(HasSubstr("uncompressed it would take"), HasSubstr("expected loss +"), HasSubstr("a trained bottleneck")));
  EXPECT_THAT(plan.explain, Contains(HasSubstr(absl::StrCat("Codec: ", reason))));
}

TEST(PlanLinks, UniformPolicyGivesEveryLinkOneCodecButThoseThatCarryLabelsAlone) {
  for (const std::string codec : {"auto", "int8"}) {
    const auto workload = Resolve({absl::StrCat("spec.compression={policy: uniform, codec: ", codec, "}")});
    Profiles profiles = OnTopology(*workload);
    for (wire::DeviceProfile& device : profiles.devices) {
      for (auto& [signature, op] : device.ops) op.seconds = 2e-5;
    }
    const wire::PlanDocument plan = PlanOf(*workload, profiles, {.strategy = "equal-ops"});
    ASSERT_EQ(plan.stages.size(), 3);
    EXPECT_NE(plan.CodecBetween(0, 1), "fp32") << codec;
    EXPECT_EQ(plan.CodecBetween(0, 1), plan.CodecBetween(1, 2)) << codec;
    EXPECT_EQ(LinkBetween(plan, 0, 2).codec, "fp32") << codec;
  }
}

TEST(PlanLinks, TopKValuesAreThoseTheJobAsksFor) {
  const std::pair<std::string, std::string> wanted[] = {
      {"", "topk@20:int8"}, {", topkValues: int8", "topk@20:int8"}, {", topkValues: fp16", "topk@20:fp16"}};
  for (const auto& [values, codec] : wanted) {
    const auto workload = Resolve({absl::StrCat("spec.compression={policy: uniform, codec: topk, ratio: 20", values, "}")});
    const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
    ASSERT_EQ(plan.stages.size(), 3);
    EXPECT_EQ(plan.CodecBetween(0, 1), codec);
    EXPECT_EQ(plan.CodecBetween(1, 2), codec);
  }
}

TEST(PlanLinks, TheLadderMayShrinkALinkByInt4WhateverTheRatioOfTheJob) {
  const auto most = [](job::Codec codec, double ratio) {
    const job::Compression wish{.policy = job::CompressionPolicy::kAdatopk, .codec = codec, .ratio = ratio};
    return CompressionPolicy(PolicyOf(wish), {}).MaxRatio();
  };
  EXPECT_GT(most(job::Codec::kAuto, 1), 4.9);
  EXPECT_GT(most(job::Codec::kAuto, 100), 100);
  EXPECT_LT(most(job::Codec::kInt8, 100), 4.1);
  EXPECT_LT(most(job::Codec::kFp16, 1), 2.1);
}

TEST(PlanLinks, TiedEmbeddingsAreExchanged) {
  const auto workload = Resolve();
  const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  ASSERT_EQ(plan.tied.size(), 1);
  EXPECT_EQ(plan.tied[0].parameter, "transformer.wte.weight");
  EXPECT_THAT(plan.tied[0].stages, ElementsAre(0, 2));
  EXPECT_EQ(plan.tied[0].bytes, 64 * 32 * 4);
  // The labels travel on the same link from the first stage to the last; nothing but the tied gradient comes back.
  for (const bool back : {false, true}) {
    const int src = back ? 2 : 0, dst = back ? 0 : 2;
    const wire::PlanLink link = LinkBetween(plan, src, dst);
    EXPECT_EQ(link.tied_bytes, plan.tied[0].bytes);
    EXPECT_EQ(link.backward, back);
    EXPECT_EQ(link.bytes == link.tied_bytes, back);
    EXPECT_GT(link.seconds, 0.04) << "latency is met on the way";
  }
}

TEST(PlanLinks, ActivationsInBf16AreHalfAsManyBytesAndCodecsMakeTheSameOfThem) {
  for (const std::string codec : {"fp32", "int8"}) {
    const auto plan_in = [&](const std::string& precision) {
      const auto workload = Resolve({"spec.model.config.tieWeights=false", "spec.training.precision=" + precision,
                                     absl::StrCat("spec.compression={policy: uniform, codec: ", codec, "}")});
      return PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
    };
    const wire::PlanDocument in_fp32 = plan_in("fp32"), in_bf16 = plan_in("bf16");
    ASSERT_EQ(in_fp32.stages.size(), 3);
    ASSERT_EQ(in_bf16.stages.size(), 3);
    const wire::PlanLink wide = LinkBetween(in_fp32, 1, 2), narrow = LinkBetween(in_bf16, 1, 2);
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
  const wire::PlanDocument plan = PlanOf(*workload, OnTopology(*workload), {.strategy = "equal-ops"});
  ASSERT_EQ(plan.stages.size(), 3);
  const wire::PlanLink labels = LinkBetween(plan, 0, 2);
  std::vector<std::byte> encoded;
  const std::vector<int32_t> ids(workload->micro_batch_size * workload->targets_per_sample, 63);
  ASSERT_TRUE(compression::EncodeIntegers(ids, &encoded).ok());
  EXPECT_EQ(labels.bytes, workload->micro_batches * static_cast<int64_t>(encoded.size()));
  EXPECT_EQ(labels.ratio, 1) << "nothing is lost or left out";
}

}  // namespace
}  // namespace fusionllm::planning
