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
#include "lib/compression/loss_divergence_detector.h"
#include "lib/compression/loss_prior.h"
#include "lib/compression/testing/lossy_kinds.h"

namespace fusionllm::compression {
namespace {

using opdag::ActivationKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kLossyKinds;

std::vector<std::string> Texts(const std::vector<CodecSpec>& codecs) {
  std::vector<std::string> texts;
  for (const CodecSpec& codec : codecs) texts.push_back(ToString(codec));
  return texts;
}

CodecSpec Parsed(const std::string& text) { return ParseCodecSpec(text).value(); }

TEST(CodecGuardTest, GentlerCodecsComeInOrderOfSizeDownToExact) {
  EXPECT_THAT(Texts(LessAggressiveCodecs(TopK(30), Direction::kForward)),
              ElementsAre("topk@15:int8", "topk@7.5:int8", "int4", "int8", "fp16", "fp32"));
  EXPECT_THAT(Texts(LessAggressiveCodecs(TopK(6), Direction::kForward)), ElementsAre("int4", "int8", "fp16", "fp32"));
  EXPECT_THAT(Texts(LessAggressiveCodecs(TopK(8, ValueKind::kInt4), Direction::kForward)),
              ElementsAre("topk@4:int4", "topk@2:int4", "int4", "int8", "fp16", "fp32"));
  EXPECT_THAT(Texts(LessAggressiveCodecs(TopK(7.9, ValueKind::kInt4), Direction::kForward)),
              ElementsAre("topk@3.95:int4", "int4", "int8", "fp16", "fp32"))
      << "below a ratio of two int4 alone is as small";
  EXPECT_THAT(Texts(LessAggressiveCodecs(Parsed("int8"), Direction::kForward)), ElementsAre("fp16", "fp32"));
  EXPECT_THAT(Texts(LessAggressiveCodecs(Parsed("bf16"), Direction::kForward)), ElementsAre("fp32"));
  EXPECT_THAT(LessAggressiveCodecs(Exact(), Direction::kForward), IsEmpty());
}

TEST(CodecGuardTest, GentlerCodecsOfAGradientKeepItsMask) {
  EXPECT_THAT(Texts(LessAggressiveCodecs(TopK(30), Direction::kBackward)), ElementsAre("topk@30:fp16"));
  EXPECT_THAT(Texts(LessAggressiveCodecs(TopK(30, ValueKind::kInt4), Direction::kBackward)), ElementsAre("topk@30:fp16"));
  EXPECT_THAT(LessAggressiveCodecs(TopK(30, ValueKind::kFp16), Direction::kBackward), IsEmpty());
  EXPECT_THAT(Texts(LessAggressiveCodecs(Parsed("int8"), Direction::kBackward)), ElementsAre("fp16", "fp32"));
}

TEST(CodecGuardTest, ErrorFeedbackStaysWithLossyCodecs) {
  EXPECT_THAT(Texts(LessAggressiveCodecs(Parsed("int4+ef"), Direction::kForward)), ElementsAre("int8+ef", "fp16+ef", "fp32"));
  EXPECT_EQ(ToString(LessAggressiveOf(Parsed("topk@10:int8+ef"), Parsed("int8"))), "int8+ef");
  EXPECT_EQ(ToString(LessAggressiveOf(Parsed("int4"), Parsed("int8+ef"))), "int8");
  EXPECT_EQ(ToString(LessAggressiveOf(Parsed("int8+ef"), Exact())), "fp32");
}

TEST(CodecGuardTest, OfTwoCodecsTheOneThatLosesLessIsTheGentler) {
  const std::vector<std::string> by_loss = {"fp32",        "fp16",        "int8",         "int4",         "topk@5:fp16",
                                            "topk@5:int8", "topk@5:int4", "topk@10:fp16", "topk@100:int8"};
  for (size_t i = 0; i < by_loss.size(); ++i) {
    for (size_t j = i; j < by_loss.size(); ++j) {
      EXPECT_EQ(ToString(LessAggressiveOf(Parsed(by_loss[i]), Parsed(by_loss[j]))), by_loss[i]);
      EXPECT_EQ(ToString(LessAggressiveOf(Parsed(by_loss[j]), Parsed(by_loss[i]))), by_loss[i]);
    }
  }
}

// Values before training are nearly normal, whatever the cut.
double ErrorOfNormal(const CodecSpec& codec) {
  static auto& known = *new std::map<std::string, double>;
  if (const auto found = known.find(ToString(codec)); found != known.end()) return found->second;
  std::vector<float> values(1 << 14), decoded(values.size());
  const base::CounterRng rng(1, "normal");
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rng.Normal(static_cast<uint64_t>(i)));
  std::vector<std::byte> message;
  EXPECT_TRUE(Encode(codec, Direction::kForward, values, nullptr, nullptr, &message, nullptr).ok());
  EXPECT_TRUE(Decode(Direction::kForward, message, nullptr, decoded, nullptr).ok());
  return known[ToString(codec)] = CompareTensors(values, decoded)->relative_error;
}

// What a sender of such values goes on with, of a link that may cost `nats`.
std::string GoesBy(const std::string& codec, ActivationKind kind, double nats) {
  if (ErrorOfNormal(Parsed(codec)) <= MaxRelativeError(Parsed(codec), kind, Direction::kForward, nats)) return codec;
  for (const CodecSpec& gentler : LessAggressiveCodecs(Parsed(codec), Direction::kForward)) {
    if (ErrorOfNormal(gentler) <= kBackoffMargin * MaxRelativeError(gentler, kind, Direction::kForward, nats)) return ToString(gentler);
  }
  return "none";
}

TEST(CodecGuardTest, LimitsPassTheCodecsThatWereHarmlessAndNoOthers) {
  const std::map<ActivationKind, std::pair<std::vector<std::string>, std::vector<std::string>>> harmless_and_others = {
      {ActivationKind::kLossInput, {{"fp16", "bf16"}, {"int8", "int4", "topk@2:fp16", "topk@2:int4", "topk@30:int8"}}},
      {ActivationKind::kData, {{"fp16"}, {"int8", "topk@2:fp16", "topk@2:int4"}}},
      {ActivationKind::kResidual,
       {{"int8", "int4", "topk@3:int8", "topk@3:fp16", "topk@2.6:int4"},
        {"topk@3:int4", "topk@3.3:int4", "topk@8:int8", "topk@12.5:int8", "topk@30:int8", "topk@100:int8"}}},
      {ActivationKind::kInnerResidual,
       {{"int4", "topk@3:int4", "topk@3.91:int4", "topk@6:int4", "topk@8:int4", "topk@8:int8"},
        {"topk@8.6:int8", "topk@12.5:int4", "topk@30:int8"}}},
      {ActivationKind::kAttentionInput, {{"int4", "topk@3:int8", "topk@2.6:int4"}, {"topk@3:int4", "topk@10:int8"}}},
      {ActivationKind::kNormalized, {{"int8", "int4"}, {"topk@2:int4", "topk@5:int8", "topk@100:int8"}}},
      {ActivationKind::kHidden, {{"int8"}, {"int4", "topk@2:int4", "topk@5:int8", "topk@100:int8"}}}};
  for (const auto& [kind, codecs] : harmless_and_others) {
    const auto limit_of = [&](const std::string& codec) { return MaxRelativeError(Parsed(codec), kind, Direction::kForward); };
    for (const std::string& codec : codecs.first)
      EXPECT_LE(ErrorOfNormal(Parsed(codec)), limit_of(codec)) << opdag::Name(kind) << " " << codec;
    for (const std::string& codec : codecs.second)
      EXPECT_GT(ErrorOfNormal(Parsed(codec)), limit_of(codec)) << opdag::Name(kind) << " " << codec;
  }
}

TEST(CodecGuardTest, FallbackOfForcedCodecStaysWithinLossBudget) {
  for (const ActivationKind kind : kLossyKinds) {
    for (const double nats : {0.0, 0.01, 0.025, 0.05, kGuardLossBudget, 0.3, 1.0}) {
      for (const char* codec : {"int4", "topk@10:int8", "topk@12.5:int8", "topk@30:int8", "topk@100:int8", "topk@1000:fp16"}) {
        const std::string followed = GoesBy(codec, kind, nats);
        // A percent of the ratio is what errors of this many values differ by.
        const CodecSpec spec = Parsed(followed);
        const double cost = ExpectedLossIncrease(spec.kind == CodecKind::kTopK ? TopK(spec.ratio / 1.01) : spec, kind, 0);
        EXPECT_LE(cost, nats + 1e-9) << opdag::Name(kind) << " by " << codec << ", then " << followed << ", of " << nats;
      }
    }
  }
}

// Of what is no inner residual int4 values cost more than the error of the same ratio says.
TEST(CodecGuardTest, FallbackOfForcedInt4ValuesStaysWithinLossBudget) {
  for (const ActivationKind kind : kLossyKinds) {
    for (const double nats : {0.0, 0.01, 0.025, 0.05, kGuardLossBudget, 0.3, 1.0}) {
      for (const char* codec : {"topk@2:int4", "topk@2.5:int4", "topk@3:int4", "topk@3.3:int4", "topk@4:int4", "topk@10:int4",
                                "topk@30:int4", "topk@100:int4"}) {
        const std::string followed = GoesBy(codec, kind, nats);
        const CodecSpec spec = Parsed(followed);
        const CodecSpec milder = spec.kind == CodecKind::kTopK ? TopK(spec.ratio / 1.05, spec.top_k_values) : spec;
        EXPECT_LE(ExpectedLossIncrease(milder, kind, 0), nats + 1e-9)
            << opdag::Name(kind) << " by " << codec << ", then " << followed << ", of " << nats;
      }
    }
  }
}

TEST(CodecGuardTest, TheMoreLinksLoseSomethingTheGentlerIsEach) {
  const auto forced = [](int links) {
    return GoesBy("topk@30:int8", ActivationKind::kResidual, SplitLossBudget(kGuardLossBudget, std::vector<double>(links, 0.8)).front());
  };
  EXPECT_EQ(forced(1), "int4");
  EXPECT_EQ(forced(3), "int4");
  EXPECT_EQ(forced(4), "int8") << "four times int4 would be more";
  EXPECT_EQ(GoesBy("topk@10:int8", ActivationKind::kResidual, 1), "topk@10:int8") << "whose plans may cost half a nat";
}

TEST(CodecGuardTest, WhatAPlanWithinTheBudgetUsesInsideAStreamPasses) {
  for (const double others : {0.0, 0.03}) {
    for (const char* codec : {"int4", "topk@2:int4", "topk@3.13:int4", "topk@3.91:int4"}) {
      const double cost = ExpectedLossIncrease(Parsed(codec), ActivationKind::kInnerResidual, 0);
      const double share = SplitLossBudget(kGuardLossBudget, std::vector<double>{cost, others})[0];
      EXPECT_EQ(GoesBy(codec, ActivationKind::kInnerResidual, share), codec) << "beside others that cost " << others;
    }
  }
}

TEST(CodecGuardTest, WhatAPlanWithinTheBudgetUsesPasses) {
  for (const double others : {0.0, 0.01, 0.03}) {
    for (const char* codec : {"int8", "int4", "topk@1.3:int8", "topk@2:int8", "topk@2:int4"}) {
      const double cost = ExpectedLossIncrease(Parsed(codec), ActivationKind::kResidual, 0);
      const double share = SplitLossBudget(kGuardLossBudget, std::vector<double>{cost, others})[0];
      EXPECT_EQ(GoesBy(codec, ActivationKind::kResidual, share), codec) << "beside others that cost " << others;
    }
  }
}

// Where all that links may cost is spent, the share of each is what its codec is expected to cost, and no more.
TEST(CodecGuardTest, ACodecThatCostsWhatItsLinkMayPasses) {
  for (const ActivationKind kind : {ActivationKind::kInnerResidual, ActivationKind::kResidual}) {
    for (const ValueKind values : {ValueKind::kFp16, ValueKind::kInt8, ValueKind::kInt4}) {
      for (const double ratio : {2.5, 3.0, 4.0, 5.0}) {
        const double nats = ExpectedLossIncrease(TopK(ratio, values), kind, 0);
        // A percent is what errors of this many values differ by; of int4 values the limit takes more for granted than they lose.
        const std::string codec = ToString(TopK(values == ValueKind::kInt4 ? ratio : ratio / 1.01, values));
        EXPECT_EQ(GoesBy(codec, kind, nats), codec) << opdag::Name(kind);
      }
    }
  }
}

TEST(CodecGuardTest, SharesFollowWhatIsExpected) {
  EXPECT_THAT(SplitLossBudget(0.1, std::vector<double>{0.3, 0, 0.1}),
              ElementsAre(::testing::DoubleEq(0.075), 0, ::testing::DoubleEq(0.025)));
  EXPECT_THAT(SplitLossBudget(0.1, std::vector<double>{0.02, 0.01}), ElementsAre(::testing::DoubleEq(0.09), ::testing::DoubleEq(0.08)))
      << "what is left is anybody's";
  EXPECT_THAT(SplitLossBudget(0.1, std::vector<double>{0, 0}), ElementsAre(0.1, 0.1));
  EXPECT_THAT(SplitLossBudget(0.1, {}), IsEmpty());
}

TEST(CodecGuardTest, ABadLossEndsWithoutCompressionInThreeSteps) {
  EXPECT_EQ(ToString(CodecAfterDivergence(TopK(100))), "int8");
  EXPECT_EQ(ToString(CodecAfterDivergence(Parsed("int4+ef"))), "int8+ef");
  EXPECT_EQ(ToString(CodecAfterDivergence(Parsed("int8"))), "fp16");
  EXPECT_EQ(ToString(CodecAfterDivergence(Parsed("fp16"))), "fp32");
  EXPECT_EQ(ToString(CodecAfterDivergence(Parsed("bf16"))), "fp32");
}

}  // namespace
}  // namespace fusionllm::compression
