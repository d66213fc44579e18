// The CUDA back end on bf16 tensors: the suite that the back ends of the host pass, and what takes no detour by way of fp32. Without a
// toolkit and a card the kernels are carried out by the processor (emulated/).
#include <bit>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/bf16.h"
#include "lib/kernels/cuda/gemm.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/testing/bf16_conformance.h"
#include "lib/kernels/upcast_kernel.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::cuda {
namespace {

using tensor::DType;
using testing::Target;

class CudaBf16Test : public TargetFixture<::testing::TestWithParam<int>> {  // the size of the cases
 protected:
  // A card's library may add up products in another order for each type; plain loops do not.
  bool OnACard() const { return device_->info().name != "emulated card"; }
};

TEST_P(CudaBf16Test, GivesTheBitsOfTheFp32KernelRoundedOnce) {
  ExpectBf16RoundedOnce(target_, GetParam(), Mode::kTrain, /*products=*/!OnACard());
}
TEST_P(CudaBf16Test, DoesSoInEvaluationToo) { ExpectBf16RoundedOnce(target_, GetParam(), Mode::kEvaluate, /*products=*/!OnACard()); }
TEST_P(CudaBf16Test, IsWithinOneRoundingOfTheReferenceInFp32) { ExpectBf16Agreement(target_, GetParam()); }
TEST_P(CudaBf16Test, TheSameBitsComeInEveryCall) { ExpectBf16SameBits(target_, target_, GetParam()); }
TEST_P(CudaBf16Test, GradientsOfParametersAddToWhatIsThereInFp32) { EXPECT_GT(ExpectBf16GradientsAdd(target_, GetParam()), 20); }
TEST_P(CudaBf16Test, MissingOutputsChangeNoOther) { ExpectBf16MissingOutputsChangeNoOther(target_, GetParam()); }
TEST_P(CudaBf16Test, RunsInPlaceWhereItSaysSo) { EXPECT_GT(ExpectBf16SameInPlace(target_, GetParam()), 50); }

INSTANTIATE_TEST_SUITE_P(Sizes, CudaBf16Test, ::testing::Values(1, 2));

class CudaBf16DeviceTest : public CudaBf16Test {
 protected:
  tensor::MemoryBlock Room(size_t bytes) { return *device_->memory().Allocate(bytes); }
};

// By their bits: NaNs are among them.
std::vector<uint32_t> Words(const std::vector<float>& values) {
  std::vector<uint32_t> words;
  for (const float x : values) words.push_back(std::bit_cast<uint32_t>(x));
  return words;
}

TEST_P(CudaBf16DeviceTest, CastsHaveTheBitsOfTheHostsForNumbersOfEveryKind) {
  std::vector<uint16_t> all;
  std::vector<float> between;  // each bf16, and what lies next to it and around the middle of the way to its neighbour
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    all.push_back(static_cast<uint16_t>(bits));
    for (const uint32_t below : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) between.push_back(std::bit_cast<float>(bits << 16 | below));
  }
  // No multiple of what a thread takes at once.
  all.push_back(0x3f80);
  between.push_back(1.00390625f);
  std::vector<float> wide(all.size());
  std::vector<uint16_t> narrow(between.size());
  tensor::UpcastBf16(all, wide.data());
  tensor::RoundToBf16(between, narrow.data());
  std::vector<float> rounded(between.size());
  tensor::UpcastBf16(narrow, rounded.data());

  const tensor::MemoryBlock given_narrow = Sent(all), given_wide = Sent(between);
  const tensor::MemoryBlock widened = Room(4 * all.size()), narrowed = Room(2 * between.size()), in_place_of = Room(4 * between.size());
  const auto* const floats = reinterpret_cast<const float*>(given_wide.data());
  const auto count = static_cast<int64_t>(between.size());
  ASSERT_EQ(UpcastBf16(device_->stream(), reinterpret_cast<const uint16_t*>(given_narrow.data()), reinterpret_cast<float*>(widened.data()),
                       static_cast<int64_t>(all.size())),
            cudaSuccess);
  ASSERT_EQ(RoundToBf16(device_->stream(), floats, reinterpret_cast<uint16_t*>(narrowed.data()), count), cudaSuccess);
  ASSERT_EQ(RoundFloatsToBf16(device_->stream(), floats, reinterpret_cast<float*>(in_place_of.data()), count), cudaSuccess);
  EXPECT_EQ(Words(Received<float>(widened)), Words(wide));
  EXPECT_EQ(Received<uint16_t>(narrowed), narrow);
  EXPECT_EQ(Words(Received<float>(in_place_of)), Words(rounded));
}

// With the types that a training graph has; what these leave out, and other mixtures, go through copies in fp32. So do convolutions with a
// bias, which this draw has not.
TEST_P(CudaBf16DeviceTest, MostOpsTakeBf16WithoutUpcast) {
  std::set<std::string> copied, native;
  for (const testing::OpCase& op_case : testing::LoweredCases(5, 2)) {
    if (!NeedsUpcast(op_case.op)) continue;
    PreparedOp in_f32 = op_case.op;
    size_t copies = 0;
    for (auto* types : {&in_f32.inputs, &in_f32.outputs}) {
      for (tensor::TensorType& type : *types) {
        if (type.dtype != DType::kBF16) continue;
        type.dtype = DType::kF32;
        copies += type.bytes();
      }
    }
    const auto kernel = target_.make(op_case.op), wide = target_.make(in_f32);
    ASSERT_TRUE(kernel.ok() && wide.ok()) << kernel.status() << wide.status();
    ((*kernel)->workspace_bytes() < (*wide)->workspace_bytes() + copies ? native : copied)
        .insert(std::string(opdag::Name(op_case.op.kind)));
  }
  EXPECT_THAT(copied, ::testing::UnorderedElementsAre("conv2d_grad_weight", "mse", "mse_grad"));
  for (const char* hot :
       {"linear", "linear_grad_input", "linear_grad_weight", "matmul", "attention", "attention_grad", "layer_norm", "conv2d",
        "conv2d_grad_input", "layer_norm_grad", "gelu", "gelu_grad", "add", "embedding", "embedding_grad", "cross_entropy"}) {
    EXPECT_TRUE(native.contains(hot)) << hot;
  }
}

TEST_P(CudaBf16DeviceTest, ProductsOfTypesThatDoNotGoTogetherAreRefused) {
  GemmShape shape{.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2};
  shape.result = DType::kBF16;
  EXPECT_EQ(PrepareGemm(*device_, shape).status().message(), "no product of f32 factors is bf16");
  shape.factors = DType::kBF16;
  EXPECT_TRUE(CheckTypes(shape).ok());
  shape.result = DType::kF32;
  EXPECT_TRUE(CheckTypes(shape).ok());
}

INSTANTIATE_TEST_SUITE_P(One, CudaBf16DeviceTest, ::testing::Values(1));

}  // namespace
}  // namespace fusionllm::kernels::cuda
