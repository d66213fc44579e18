// What the codecs of a link take of the stages' time.
#include "lib/planning/codec_adapter.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace fusionllm::planning {
namespace {

constexpr int64_t kElements = 4000;

scheduler::LinkCodec CodecOf(const std::string& named, double ratio, int64_t lossless_bytes = 0) {
  job::Spec spec;
  spec.compression.policy = job::CompressionPolicy::kUniform;
  spec.compression.codec.kind = named == "topk" ? compression::CodecKind::kTopK : compression::CodecKind::kExact;
  spec.compression.ratio = ratio;
  wire::DeviceProfile device;
  device.codecs["fp32"] = {
      .encode_seconds = 1e-10, .decode_seconds = 2e-10, .encode_message_seconds = 9e-6, .decode_message_seconds = 6e-6};
  device.codecs["topk"] = {.encode_seconds = 1e-9,
                           .decode_seconds = 3e-10,
                           .encode_message_seconds = 12e-6,
                           .decode_message_seconds = 7e-6,
                           .encode_kept_seconds = 2e-9,
                           .decode_kept_seconds = 8e-9};
  const CompressionPolicy policy(PolicyOf(spec), device);
  const scheduler::LinkTraffic traffic{.lossy_tensors = {{.bytes = 4 * kElements, .kind = opdag::ActivationKind::kResidual}},
                                       .forward_bytes = 4 * kElements,
                                       .backward_bytes = 4 * kElements,
                                       .forward_lossless_bytes = lossless_bytes,
                                       .forward_bytes_per_s = 1e6,
                                       .backward_bytes_per_s = 1e6};
  std::array<scheduler::LinkCodec, 1> codecs;
  policy.Choose(std::array{traffic}, /*target_s=*/1, codecs);
  return codecs[0];
}

TEST(CompressionPolicyTest, AMessageTakesTimeOfItsOwnBesideThatOfItsValues) {
  const scheduler::LinkCodec codec = CodecOf("fp32", 1);
  EXPECT_DOUBLE_EQ(codec.producer_forward_s, 9e-6 + kElements * 1e-10);
  EXPECT_DOUBLE_EQ(codec.consumer_forward_s, 6e-6 + kElements * 2e-10);
  EXPECT_DOUBLE_EQ(codec.consumer_backward_s, 9e-6 + kElements * 1e-10);
  EXPECT_DOUBLE_EQ(codec.producer_backward_s, 6e-6 + kElements * 2e-10);
}

TEST(CompressionPolicyTest, IdsCostOneMoreMessage) {
  const scheduler::LinkCodec alone = CodecOf("fp32", 1), with_ids = CodecOf("fp32", 1, /*lossless_bytes=*/64);
  EXPECT_DOUBLE_EQ(with_ids.producer_forward_s - alone.producer_forward_s, 9e-6);
  EXPECT_DOUBLE_EQ(with_ids.consumer_forward_s - alone.consumer_forward_s, 6e-6);
  EXPECT_DOUBLE_EQ(with_ids.consumer_backward_s, alone.consumer_backward_s) << "they have no gradient";
}

TEST(CompressionPolicyTest, TopKTakesTimeForEachValueThatItKeeps) {
  for (const double ratio : {2.0, 20.0}) {
    const double kept = kElements / ratio;
    const scheduler::LinkCodec codec = CodecOf("topk", ratio);
    EXPECT_DOUBLE_EQ(codec.producer_forward_s, 12e-6 + kElements * 1e-9 + kept * 2e-9) << ratio;
    EXPECT_DOUBLE_EQ(codec.consumer_forward_s, 7e-6 + kElements * 3e-10 + kept * 8e-9) << ratio;
    EXPECT_DOUBLE_EQ(codec.consumer_backward_s, codec.producer_backward_s) << "gathered by the mask, not selected";
    EXPECT_DOUBLE_EQ(codec.producer_backward_s, 7e-6 + kElements * 3e-10 + kept * 8e-9) << ratio;
  }
}

}  // namespace
}  // namespace fusionllm::planning
