// The conformance suite of tensor codecs on a card, or, where there is neither toolkit nor card, on the processor in its place
// (lib/kernels/cuda/emulated).
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/compression/cuda/codec.h"
#include "lib/compression/cuda/quantize.h"
#include "lib/compression/registry.h"
#include "lib/compression/testing/conformance.h"
#include "lib/kernels/cuda/cuda.h"

namespace fusionllm::compression::cuda {
namespace {

class CudaTensorCodecTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto backend = kernels::cuda::CreateCudaBackend(0);
    // The one answer on which a test may be left out: there is no card, and it says so.
    if (absl::IsNotFound(backend.status())) GTEST_SKIP() << backend.status().message();
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    codec_ = TensorCodecOn(*backend_);
    ASSERT_NE(codec_, nullptr);
  }

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<TensorCodec> codec_;
};

TEST_F(CudaTensorCodecTest, WritesAndReadsTheSameMessages) { testing::ExpectSameMessages(*codec_); }
TEST_F(CudaTensorCodecTest, KeepsSelectionsApart) { testing::ExpectSelectionsKeptApart(*codec_); }
TEST_F(CudaTensorCodecTest, KeepsTheSameResiduals) { testing::ExpectSameResiduals(*codec_); }
TEST_F(CudaTensorCodecTest, RefusesTheSameValuesAndMasks) { testing::ExpectSameErrors(*codec_); }
TEST_F(CudaTensorCodecTest, JudgesDamageAlike) { testing::ExpectSameHandlingOfCorruption(*codec_); }
TEST_F(CudaTensorCodecTest, CarriesBf16TensorsAsTheyAreAndByWayOfFloats) { testing::ExpectSameBf16(*codec_); }
TEST_F(CudaTensorCodecTest, KeepsMessagesUnderWayApart) { testing::ExpectMessagesUnderWayKeptApart(*codec_); }
TEST_F(CudaTensorCodecTest, CodesIntegersAndCompares) { testing::ExpectSameIntegersAndComparisons(*codec_); }

TEST(DeviceCodecTest, EveryLossyCodecHasKernels) {
  for (const Codec* codec : Codecs()) {
    if (codec->dense() == nullptr || codec->traits.kind == CodecKind::kExact) continue;
    EXPECT_NE(FindDeviceCodec(codec->dense()->layout), nullptr) << codec->traits.name << " has none in lib/compression/cuda/quantize.cu";
  }
}

TEST_F(CudaTensorCodecTest, IsThereForItsBackendAlone) {
  EXPECT_EQ(&codec_->memory(), &backend_->memory());
  const auto cpu = kernels::CreateBackend("cpu", {});
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(TensorCodecOn(**cpu), nullptr);
}

}  // namespace
}  // namespace fusionllm::compression::cuda
