#include "lib/broker/codec_limit.h"

#include "gtest/gtest.h"
#include "lib/compression/codec_guard.h"
#include "lib/compression/spec.h"

namespace fusionllm::broker {
namespace {

using compression::CodecKind;
using job::Codec;
using job::Compression;
using job::CompressionPolicy;

RunPlan PlanWith(const std::vector<std::string>& codecs) {
  RunPlan plan;
  for (const std::string& codec : codecs) plan.plan.links.push_back({.codec = codec});
  return plan;
}

TEST(HarshestCodecTest, IsTheFurthestUpTheLadder) {
  EXPECT_EQ(MostAggressiveCodec(PlanWith({"fp32", "fp32"})), std::nullopt);
  EXPECT_EQ(MostAggressiveCodec(PlanWith({})), std::nullopt);
  EXPECT_EQ(ToString(*MostAggressiveCodec(PlanWith({"int8", "fp32", "int4", "fp16"}))), "int4");
  EXPECT_EQ(ToString(*MostAggressiveCodec(PlanWith({"topk@20:int8", "int4", "topk@100:int8"}))), "topk@100:int8");
}

TEST(LimitedToTest, LeavesNothingBeyondTheLimit) {
  const Compression ladder{.policy = CompressionPolicy::kAdatopk};
  EXPECT_EQ(WithCodecLimit(ladder, compression::TopK(50)).ratio, 50);
  EXPECT_EQ(WithCodecLimit(ladder, compression::TopK(50)).limit, Codec());
  EXPECT_EQ(WithCodecLimit(ladder, {.kind = CodecKind::kInt8}).limit, Codec{CodecKind::kInt8});
  EXPECT_EQ(WithCodecLimit(ladder, compression::Exact()).policy, CompressionPolicy::kNone);
  const Compression uniform{.policy = CompressionPolicy::kUniform, .codec = Codec{CodecKind::kTopK}, .ratio = 20};
  EXPECT_EQ(WithCodecLimit(uniform, compression::TopK(10)).ratio, 10);
  EXPECT_EQ(WithCodecLimit(uniform, {.kind = CodecKind::kInt4}).codec, Codec{CodecKind::kInt4});
}

TEST(HarshestCodecTest, CountsGradientsOfTiedParameters) {
  RunPlan plan = PlanWith({"fp32", "fp16"});
  plan.plan.tied = {{.codec = "int8"}};
  EXPECT_EQ(ToString(*MostAggressiveCodec(plan)), "int8");
  plan.plan.tied = {{.codec = "fp32"}};
  EXPECT_EQ(ToString(*MostAggressiveCodec(plan)), "fp16");
}

TEST(LimitedToTest, TiedGradientsThatAJobAsksForKeepToTheLimitToo) {
  using job::TiedGradients;
  Compression asked{.policy = CompressionPolicy::kAdatopk, .tied_gradients = TiedGradients{CodecKind::kInt4}};
  EXPECT_EQ(WithCodecLimit(asked, compression::TopK(50)).tied_gradients, TiedGradients{CodecKind::kInt4});
  EXPECT_EQ(WithCodecLimit(asked, {.kind = CodecKind::kInt8}).tied_gradients, TiedGradients{CodecKind::kInt8});
  EXPECT_EQ(WithCodecLimit(asked, {.kind = CodecKind::kFp16}).tied_gradients, TiedGradients{CodecKind::kExact}) << "bf16 loses more";
  asked.tied_gradients = TiedGradients{CodecKind::kBf16};
  EXPECT_EQ(WithCodecLimit(asked, {.kind = CodecKind::kInt8}).tied_gradients, TiedGradients{CodecKind::kBf16}) << "no harsher than it was";
  asked.tied_gradients = TiedGradients();
  EXPECT_EQ(WithCodecLimit(asked, {.kind = CodecKind::kInt8}).tied_gradients, TiedGradients()) << "the planner keeps to the limit";
}

TEST(LimitedToTest, MakesNoJobHarsherThanItWas) {
  const Compression mild{.policy = CompressionPolicy::kUniform, .codec = Codec{CodecKind::kInt8}};
  EXPECT_EQ(WithCodecLimit(mild, {.kind = CodecKind::kInt4}), mild);
  EXPECT_EQ(WithCodecLimit(mild, compression::TopK(50)).codec, Codec{CodecKind::kInt8});
  const Compression own_limit{.policy = CompressionPolicy::kAdatopk, .limit = Codec{CodecKind::kFp16}, .ratio = 4};
  EXPECT_EQ(WithCodecLimit(own_limit, {.kind = CodecKind::kInt8}), own_limit);
  EXPECT_EQ(WithCodecLimit(own_limit, compression::TopK(10)), own_limit);
  const Compression none;
  EXPECT_EQ(WithCodecLimit(none, compression::Exact()), none);
}

TEST(LimitedToTest, RungByRungEveryJobEndsWithoutCompression) {
  for (const Codec codec : {Codec(), Codec{CodecKind::kTopK}, Codec{CodecKind::kInt4}}) {
    compression::CodecSpec limit =
        codec == Codec{CodecKind::kInt4} ? compression::CodecSpec{.kind = CodecKind::kInt4} : compression::TopK(1000);
    Compression compression{.policy = CompressionPolicy::kAdatopk, .codec = codec, .ratio = 1000};
    int rungs = 0;
    while (compression.policy != CompressionPolicy::kNone && rungs < 100) {
      const auto gentler = compression::LessAggressiveCodecs(limit, compression::Direction::kForward);
      if (!gentler.empty()) limit = gentler.front();
      compression = WithCodecLimit(compression, limit);
      ++rungs;
    }
    EXPECT_LE(rungs, 13) << "a run is not planned anew forever";
  }
}

}  // namespace
}  // namespace fusionllm::broker
