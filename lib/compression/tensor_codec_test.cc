// The conformance suite of tensor codecs on the host's own; lib/compression/cuda runs it on a card.
#include "lib/compression/tensor_codec.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/testing/conformance.h"

namespace fusionllm::compression {
namespace {

class TensorCodecTest : public ::testing::Test {
 protected:
  const std::unique_ptr<TensorCodec> codec_ = HostTensorCodec();
};

TEST_F(TensorCodecTest, WritesAndReadsTheSameMessages) { testing::ExpectSameMessages(*codec_); }
TEST_F(TensorCodecTest, KeepsSelectionsApart) { testing::ExpectSelectionsKeptApart(*codec_); }
TEST_F(TensorCodecTest, KeepsTheSameResiduals) { testing::ExpectSameResiduals(*codec_); }
TEST_F(TensorCodecTest, RefusesTheSameValuesAndMasks) { testing::ExpectSameErrors(*codec_); }
TEST_F(TensorCodecTest, JudgesDamageAlike) { testing::ExpectSameHandlingOfCorruption(*codec_); }
TEST_F(TensorCodecTest, CarriesBf16TensorsAsTheyAreAndByWayOfFloats) { testing::ExpectSameBf16(*codec_); }
TEST_F(TensorCodecTest, KeepsMessagesUnderWayApart) { testing::ExpectMessagesUnderWayKeptApart(*codec_); }
TEST_F(TensorCodecTest, CodesIntegersAndCompares) { testing::ExpectSameIntegersAndComparisons(*codec_); }

}  // namespace
}  // namespace fusionllm::compression
