#include "lib/compression/codec_guard.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/compression/codec.h"
#include "lib/compression/guard.h"

namespace fusionllm::compression {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Texts(const std::vector<CodecSpec>& codecs) {
  std::vector<std::string> texts;
  for (const CodecSpec& codec : codecs) texts.push_back(ToString(codec));
  return texts;
}

CodecSpec Parsed(const std::string& text) { return ParseCodecSpec(text).value(); }

TEST(CodecGuardTest, GentlerCodecsComeInOrderOfSizeDownToExact) {
  EXPECT_THAT(Texts(GentlerCodecs(TopK(30), Direction::kForward)),
              ElementsAre("topk@15:int8", "topk@7.5:int8", "int4", "int8", "fp16", "fp32"));
  EXPECT_THAT(Texts(GentlerCodecs(TopK(6), Direction::kForward)), ElementsAre("int4", "int8", "fp16", "fp32"));
  EXPECT_THAT(Texts(GentlerCodecs(Parsed("int8"), Direction::kForward)), ElementsAre("fp16", "fp32"));
  EXPECT_THAT(Texts(GentlerCodecs(Parsed("bf16"), Direction::kForward)), ElementsAre("fp32"));
  EXPECT_THAT(GentlerCodecs(Exact(), Direction::kForward), IsEmpty());
}

TEST(CodecGuardTest, GentlerCodecsOfAGradientKeepItsMask) {
  EXPECT_THAT(Texts(GentlerCodecs(TopK(30), Direction::kBackward)), ElementsAre("topk@30:fp16"));
  EXPECT_THAT(GentlerCodecs(TopK(30, ValueKind::kFp16), Direction::kBackward), IsEmpty());
  EXPECT_THAT(Texts(GentlerCodecs(Parsed("int8"), Direction::kBackward)), ElementsAre("fp16", "fp32"));
}

TEST(CodecGuardTest, ErrorFeedbackStaysWithLossyCodecs) {
  EXPECT_THAT(Texts(GentlerCodecs(Parsed("int4+ef"), Direction::kForward)), ElementsAre("int8+ef", "fp16+ef", "fp32"));
  EXPECT_EQ(ToString(GentlerOf(Parsed("topk@10:int8+ef"), Parsed("int8"))), "int8+ef");
  EXPECT_EQ(ToString(GentlerOf(Parsed("int4"), Parsed("int8+ef"))), "int8");
  EXPECT_EQ(ToString(GentlerOf(Parsed("int8+ef"), Exact())), "fp32");
}

TEST(CodecGuardTest, OfTwoCodecsTheOneThatLosesLessIsTheGentler) {
  const std::vector<std::string> by_loss = {"fp32", "fp16", "int8", "int4", "topk@5:fp16", "topk@5:int8", "topk@10:fp16", "topk@100:int8"};
  for (size_t i = 0; i < by_loss.size(); ++i) {
    for (size_t j = i; j < by_loss.size(); ++j) {
      EXPECT_EQ(ToString(GentlerOf(Parsed(by_loss[i]), Parsed(by_loss[j]))), by_loss[i]);
      EXPECT_EQ(ToString(GentlerOf(Parsed(by_loss[j]), Parsed(by_loss[i]))), by_loss[i]);
    }
  }
}

// Values before training are nearly normal, whatever the cut.
double ErrorOfNormal(const CodecSpec& codec) {
  std::vector<float> values(1 << 14), decoded(values.size());
  const base::CounterRng rng(1, "normal");
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rng.Normal(static_cast<uint64_t>(i)));
  std::vector<std::byte> message;
  EXPECT_TRUE(Encode(codec, Direction::kForward, values, nullptr, nullptr, &message, nullptr).ok());
  EXPECT_TRUE(Decode(Direction::kForward, message, nullptr, decoded, nullptr).ok());
  return CompareTensors(values, decoded)->relative_error;
}

TEST(CodecGuardTest, LimitsPassTheCodecsThatWereHarmlessAndNoOthers) {
  using opdag::ActivationKind;
  const std::map<ActivationKind, std::pair<std::vector<std::string>, std::vector<std::string>>> harmless_and_others = {
      {ActivationKind::kLossInput, {{"fp16", "bf16"}, {"int8", "int4", "topk@2:fp16", "topk@30:int8"}}},
      {ActivationKind::kData, {{"fp16"}, {"int8", "topk@2:fp16"}}},
      {ActivationKind::kResidual, {{"int8", "int4", "topk@5:int8", "topk@10:int8"}, {"topk@15:int8", "topk@30:int8", "topk@100:int8"}}},
      {ActivationKind::kAttentionInput, {{"int4", "topk@10:int8"}, {"topk@30:int8"}}},
      {ActivationKind::kNormalized, {{"int8", "int4"}, {"topk@5:int8", "topk@100:int8"}}},
      {ActivationKind::kHidden, {{"int8", "int4"}, {"topk@5:int8", "topk@100:int8"}}}};
  for (const auto& [kind, codecs] : harmless_and_others) {
    const double limit = MaxRelativeError(kind, Direction::kForward);
    for (const std::string& codec : codecs.first) EXPECT_LE(ErrorOfNormal(Parsed(codec)), limit) << opdag::Name(kind) << " " << codec;
    for (const std::string& codec : codecs.second) EXPECT_GT(ErrorOfNormal(Parsed(codec)), limit) << opdag::Name(kind) << " " << codec;
  }
}

TEST(CodecGuardTest, WhatFollowsTopKOfAStreamIsARatioBetweenFiveAndTen) {
  const double limit = kBackoffMargin * MaxRelativeError(opdag::ActivationKind::kResidual, Direction::kForward);
  for (const double ratio : {15.0, 20.0, 30.0, 100.0, 1000.0}) {
    const std::vector<CodecSpec> gentler = GentlerCodecs(TopK(ratio), Direction::kForward);
    const auto first = std::find_if(gentler.begin(), gentler.end(), [&](const CodecSpec& codec) { return ErrorOfNormal(codec) <= limit; });
    ASSERT_NE(first, gentler.end());
    EXPECT_EQ(first->kind, CodecKind::kTopK) << ratio;
    EXPECT_GE(first->ratio, 4) << ratio;
    EXPECT_LE(first->ratio, 10) << ratio;
  }
}

TEST(CodecGuardTest, ABadLossEndsWithoutCompressionInThreeSteps) {
  EXPECT_EQ(ToString(AfterBadLoss(TopK(100))), "int8");
  EXPECT_EQ(ToString(AfterBadLoss(Parsed("int4+ef"))), "int8+ef");
  EXPECT_EQ(ToString(AfterBadLoss(Parsed("int8"))), "fp16");
  EXPECT_EQ(ToString(AfterBadLoss(Parsed("fp16"))), "fp32");
  EXPECT_EQ(ToString(AfterBadLoss(Parsed("bf16"))), "fp32");
}

}  // namespace
}  // namespace fusionllm::compression
