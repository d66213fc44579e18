#include "lib/compression/loss_prior.h"

#include "gtest/gtest.h"

namespace fusionllm::compression {
namespace {

using opdag::ActivationKind;

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
    for (const ActivationKind kind :
         {ActivationKind::kResidual, ActivationKind::kAttentionInput, ActivationKind::kNormalized, ActivationKind::kHidden}) {
      EXPECT_EQ(Allowed(text, kind), text) << opdag::Name(kind);
    }
  }
}

}  // namespace
}  // namespace fusionllm::compression
