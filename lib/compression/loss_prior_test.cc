#include "lib/compression/loss_prior.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "lib/compression/testing/lossy_kinds.h"

namespace fusionllm::compression {
namespace {

using opdag::ActivationKind;
using testing::kLossyKinds;

std::string Allowed(const char* text, ActivationKind kind) { return ToString(AllowedCodec(*ParseCodecSpec(text), kind)); }

TEST(AllowedCodecTest, LossInputsAreNeverSparsifiedNorSentInFewerThan16Bits) {
  for (const char* text : {"topk@3:fp16", "topk@100:int8", "topk@5:int8+ef", "int4", "int8", "int8+ef"}) {
    EXPECT_EQ(Allowed(text, ActivationKind::kLossInput), "fp16") << text;
  }
  for (const char* text : {"fp32", "fp16", "bf16", "bf16+ef"}) EXPECT_EQ(Allowed(text, ActivationKind::kLossInput), text);
}

TEST(AllowedCodecTest, DataIsExactAndOtherActivationsTakeWhatTheLinkHas) {
  for (const char* text : {"fp32", "fp16", "int8", "int4+ef", "topk@20:int8"}) {
    EXPECT_EQ(Allowed(text, ActivationKind::kData), "fp32") << text;
    for (const ActivationKind kind : kLossyKinds) {
      EXPECT_EQ(Allowed(text, kind), text) << opdag::Name(kind);
    }
  }
}

TEST(ExpectedLossIncreaseTest, GrowsAlongTheLadderWhateverTheKindAndLength) {
  for (const ActivationKind kind : kLossyKinds) {
    for (const int64_t steps : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{300}, int64_t{500}, int64_t{1000}, int64_t{1'000'000}}) {
      EXPECT_EQ(ExpectedLossIncrease({CodecKind::kFp16}, kind, steps), 0);
      double last = ExpectedLossIncrease({CodecKind::kInt8}, kind, steps);
      EXPECT_GE(last, 0);
      EXPECT_GE(ExpectedLossIncrease({CodecKind::kInt4}, kind, steps), last);
      for (double ratio = 1; ratio < 5000; ratio *= 1.3) {
        EXPECT_GE(ExpectedLossIncrease(TopK(ratio), kind, steps), last) << ratio;
        last = ExpectedLossIncrease(TopK(ratio), kind, steps);
      }
      EXPECT_GT(last, 0.5);
    }
  }
}

TEST(ExpectedLossIncreaseTest, OfAnUnknownLengthIsTheMostOfAny) {
  for (const ActivationKind kind : kLossyKinds) {
    for (const char* text : {"int8", "int4", "topk@4:int8", "topk@30:fp16"}) {
      const CodecSpec spec = *ParseCodecSpec(text);
      for (const int64_t steps : {10, 100, 300, 1000, 100'000}) {
        EXPECT_LE(ExpectedLossIncrease(spec, kind, steps), ExpectedLossIncrease(spec, kind, 0)) << text << " " << steps;
      }
    }
  }
}

TEST(ExpectedLossIncreaseTest, OfTopKIsLeastInTheMiddleOfTheStream) {
  for (double ratio = 2.5; ratio < 30; ratio *= 1.3) {
    const double inner = ExpectedLossIncrease(TopK(ratio), ActivationKind::kInnerResidual, 300);
    for (const ActivationKind kind : kLossyKinds) {
      if (kind == ActivationKind::kInnerResidual) continue;
      EXPECT_GT(ExpectedLossIncrease(TopK(ratio), kind, 300), inner) << opdag::Name(kind) << " " << ratio;
    }
  }
}

TEST(ExpectedLossIncreaseTest, Int4ValuesCostNoLessThanInt4NorThanInt8Values) {
  for (const ActivationKind kind : kLossyKinds) {
    for (const double ratio : {1.0, 1.5, 2.0, 4.0}) {
      const double cost = ExpectedLossIncrease(TopK(ratio, ValueKind::kInt4), kind, 300);
      EXPECT_GE(cost, ExpectedLossIncrease({CodecKind::kInt4}, kind, 300));
      EXPECT_GE(cost, ExpectedLossIncrease(TopK(ratio), kind, 300));
    }
  }
}

TEST(ExpectedLossIncreaseTest, OfWhatMayNotBeCodedIsNothing) {
  for (const char* text : {"int8", "int4", "topk@100:int8"}) {
    EXPECT_EQ(ExpectedLossIncrease(*ParseCodecSpec(text), ActivationKind::kLossInput, 300), 0);
    EXPECT_EQ(ExpectedLossIncrease(*ParseCodecSpec(text), ActivationKind::kData, 300), 0);
  }
}

}  // namespace
}  // namespace fusionllm::compression
