#include "lib/compression/spec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression {
namespace {

using ::testing::HasSubstr;

TEST(CodecSpecTest, EveryTextFormReadsBackAsItself) {
  for (const char* text : {"fp32", "fp16", "bf16", "int8", "int4", "topk@20:int8", "topk@12.5:fp16", "topk@1:int8", "topk@4:int4",
                           "int4+ef", "topk@3:fp16+ef"}) {
    const auto spec = ParseCodecSpec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(ToString(*spec), text);
  }
}

TEST(CodecSpecTest, PrintsARatioThatReadsBackExactly) {
  for (double ratio : {1.0 / 3 * 10, 7.3, 999999.5, 1.0000000000000002}) {
    const auto back = ParseCodecSpec(ToString(TopK(ratio)));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->ratio, ratio);
  }
}

TEST(CodecSpecTest, KeepsInt8ValuesWhenNothingIsSaid) { EXPECT_EQ(ParseCodecSpec("topk@20")->top_k_values, ValueKind::kInt8); }

TEST(CodecSpecTest, RefusesWithTheTextAndTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "unknown codec ''"},     {"zstd", "unknown codec 'zstd'"},     {"topk", "needs its ratio"},  {"topk@x", "'x' is not a number"},
      {"topk@0.5", "outside [1, "}, {"topk@1e7", "outside [1, "},         {"topk@nan", "outside [1, "}, {"topk@5:int2", "not 'int2'"},
      {"fp32+ef", "loses nothing"}, {"int8@4", "unknown codec 'int8@4'"}, {"topk@", "is not a number"}, {"INT8", "unknown codec"},
  };
  for (const auto& [text, reason] : cases) {
    const auto spec = ParseCodecSpec(text);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(spec.status().message()), HasSubstr(reason)) << text;
  }
  EXPECT_FALSE(ParseCodecSpec(std::string(100000, 'a')).ok());
}

TEST(CodecSpecTest, KeepsAtLeastOneAndNeverLessThanTheRatioAllows) {
  EXPECT_EQ(KeptElements(100, 0), 0);
  EXPECT_EQ(KeptElements(100, 1), 1);
  EXPECT_EQ(KeptElements(100, 100), 1);
  EXPECT_EQ(KeptElements(100, 101), 2);
  EXPECT_EQ(KeptElements(3, 10), 4);
  EXPECT_EQ(KeptElements(1, 10), 10);
}

TEST(CodecSpecTest, WireRatiosAreThoseOfTheProbe) {
  const int64_t n = 16 * 128 * 128;  // the probe's activation; its table counts payload bits, both directions together
  const auto ratio = [&](const char* text) { return WireRatio(*ParseCodecSpec(text), n); };
  EXPECT_NEAR(ratio("fp32"), 1.0, 0.01);
  EXPECT_NEAR(ratio("fp16"), 2.0, 0.01);
  EXPECT_NEAR(ratio("int8"), 3.88, 0.01);
  EXPECT_NEAR(ratio("int4"), 5.0, 0.1);
  EXPECT_NEAR(ratio("topk@10:fp16"), 17, 3);
  EXPECT_NEAR(ratio("topk@10:int8"), 31, 7);
  EXPECT_NEAR(ratio("topk@100:fp16"), 130, 30);
}

TEST(CodecSpecTest, Int4ValuesAreSmallerForwardAlone) {
  const int64_t n = int64_t{1} << 16;
  const CodecSpec int8 = TopK(4), int4 = TopK(4, ValueKind::kInt4);
  const int64_t kept = n / 4, int8_values = kept + 2 * kept / kInt8BlockSize, int4_values = kept / 2 + 2 * kept / kInt4BlockSize;
  EXPECT_EQ(EncodedBytes(int8, n, Direction::kForward) - EncodedBytes(int4, n, Direction::kForward), int8_values - int4_values);
  EXPECT_EQ(EncodedBytes(int8, n, Direction::kBackward), EncodedBytes(int4, n, Direction::kBackward));
  EXPECT_EQ(GradientValueKind(ValueKind::kInt4), ValueKind::kInt8);
  EXPECT_EQ(GradientValueKind(ValueKind::kInt8), ValueKind::kInt8);
  EXPECT_EQ(GradientValueKind(ValueKind::kFp16), ValueKind::kFp16);
}

}  // namespace
}  // namespace fusionllm::compression
