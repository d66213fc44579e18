// What is asked of cuDNN for gradients of weights, by way of choosing. On the emulated card, where a stand-in takes the library's place.
#include "lib/kernels/cuda/convolution_plan.h"

#include <vector>

#include "gtest/gtest.h"
#include "lib/kernels/cuda/emulated/cudnn_convolution.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/testing/fused_case.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::cuda {
namespace {

using emulated::CudnnConvolution;
using tensor::DType;
using tensor::TensorType;
using testing::Array;
using testing::OpCase;
using testing::RandomFloats;
using testing::RunOptions;
using testing::RunResult;

constexpr int64_t kOut = 6, kIn = 4, kSide = 5;
TensorType Image(DType dtype, int64_t channels) { return {dtype, tensor::Shape{2, kSide, kSide, channels}}; }
const TensorType kWeights{DType::kF32, tensor::Shape{kOut, kIn, 3, 3}}, kBias{DType::kF32, tensor::Shape{kOut}};

// With images of `dtype`: those of a network's first layer are f32.
OpCase GradWeight(DType dtype, bool bias) {
  const std::vector<TensorType> outputs = bias ? std::vector{kWeights, kBias} : std::vector{kWeights};
  OpCase made =
      testing::CaseOf("conv2d_grad_weight", {RandomFloats(Image(dtype, kIn), 1), RandomFloats(Image(DType::kBF16, kOut), 2)}, {}, outputs);
  using Ints = std::vector<int64_t>;
  made.op.attributes = {{"out", kOut},           {"kernel", Ints{3, 3}},   {"stride", Ints{1, 1}},
                        {"padding", Ints{1, 1}}, {"dilation", Ints{1, 1}}, {"groups", int64_t{1}},
                        {"bias", bias}};
  return made;
}

std::vector<float> FloatsOf(const Array& array) { return {array.f32(), array.f32() + array.type.elements()}; }

class ConvolutionPlanTest : public TargetFixture<::testing::Test> {
 protected:
  void TearDown() override { emulated::EmulateCudnn(CudnnConvolution::kAbsent); }

  RunResult Run(const OpCase& op_case, CudnnConvolution library, AlgorithmChoice choice, bool accumulate = false) {
    emulated::EmulateCudnn(library);
    device_->set_algorithm_choice(choice);
    RunOptions options{.initial = {}, .memory = target_.memory};
    for (size_t i = 0; i < op_case.op.outputs.size(); ++i) {
      options.initial.push_back(RandomFloats(op_case.op.outputs[i], 3 + i));
      options.accumulate.push_back(accumulate);
    }
    RunResult result = target_.Run(op_case, options);
    EXPECT_TRUE(result.status.ok()) << result.status;
    EXPECT_EQ(result.overrun, "");
    return result;
  }
};

TEST_F(ConvolutionPlanTest, WeightGradientsAreDeterministicUnlessAllowedOtherwise) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const OpCase op_case = GradWeight(dtype, /*bias=*/true);
    const RunResult want = Run(op_case, CudnnConvolution::kAbsent, AlgorithmChoice::kHeuristic);
    for (const auto& [library, choice] : {std::pair{CudnnConvolution::kPresent, AlgorithmChoice::kHeuristic},
                                          std::pair{CudnnConvolution::kAbsent, AlgorithmChoice::kMeasured},
                                          std::pair{CudnnConvolution::kNoAlgorithm, AlgorithmChoice::kMeasured}}) {
      const RunResult got = Run(op_case, library, choice);
      EXPECT_EQ(FloatsOf(got.outputs[0]), FloatsOf(want.outputs[0]));
      EXPECT_EQ(FloatsOf(got.outputs[1]), FloatsOf(want.outputs[1]));
    }
  }
}

TEST_F(ConvolutionPlanTest, WhereItMayTheyAreRoundedOnceBeforeTheyAreAdded) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool bias : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const OpCase op_case = GradWeight(dtype, bias);
        const RunResult in_floats = Run(op_case, CudnnConvolution::kPresent, AlgorithmChoice::kHeuristic);
        const RunResult got = Run(op_case, CudnnConvolution::kPresent, AlgorithmChoice::kMeasured, accumulate);
        std::vector<float> want = FloatsOf(in_floats.outputs[0]);
        std::vector<uint16_t> rounded(want.size());
        tensor::RoundToBf16(want, rounded.data());
        tensor::UpcastBf16(rounded, want.data());
        EXPECT_NE(want, FloatsOf(in_floats.outputs[0])) << "nothing was to be rounded";
        const Array initial = RandomFloats(kWeights, 3);
        for (size_t i = 0; accumulate && i < want.size(); ++i) want[i] += initial.f32()[i];
        EXPECT_EQ(FloatsOf(got.outputs[0]), want);
        if (!bias) continue;
        // A sum of dy alone, which no library makes.
        const RunResult sums = Run(op_case, CudnnConvolution::kPresent, AlgorithmChoice::kHeuristic, accumulate);
        EXPECT_EQ(FloatsOf(got.outputs[1]), FloatsOf(sums.outputs[1]));
      }
    }
  }
}

TEST_F(ConvolutionPlanTest, AndTakeNoCopiesOfBf16Factors) {
  const OpCase op_case = GradWeight(DType::kBF16, /*bias=*/false);
  emulated::EmulateCudnn(CudnnConvolution::kPresent);
  const auto in_floats = target_.make(op_case.op);
  device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
  const auto rounded = target_.make(op_case.op);
  ASSERT_TRUE(in_floats.ok() && rounded.ok()) << in_floats.status() << rounded.status();
  const size_t gradient = 2 * static_cast<size_t>(kWeights.elements()),
               copies = 2 * (op_case.inputs[0].bytes.size() + op_case.inputs[1].bytes.size());
  EXPECT_LT((*rounded)->workspace_bytes(), gradient + tensor::kAlignment);
  EXPECT_GE((*in_floats)->workspace_bytes(), copies + 2 * gradient);
}

TEST_F(ConvolutionPlanTest, OpsOfF32AreFloatsInAnyCase) {
  OpCase op_case = GradWeight(DType::kF32, /*bias=*/false);
  op_case.inputs[1] = RandomFloats(Image(DType::kF32, kOut), 2);
  op_case.op.inputs[1] = op_case.inputs[1].type;
  const RunResult want = Run(op_case, CudnnConvolution::kPresent, AlgorithmChoice::kHeuristic);
  const RunResult got = Run(op_case, CudnnConvolution::kPresent, AlgorithmChoice::kMeasured);
  EXPECT_EQ(FloatsOf(got.outputs[0]), FloatsOf(want.outputs[0]));
}

TEST_F(ConvolutionPlanTest, SpecsSayWhatTheyAre) {
  const ConvolutionShape shape{2, 6, 5, 8, 6, 5, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1};
  EXPECT_EQ((ConvolutionSpec{ConvolutionPass::kGradWeight, ConvolutionPrecision::kBf16, shape}).ToString(),
            "the gradient of the weights of a convolution of [2, 6, 5, 8] to [2, 6, 5, 16] by 3x3 (stride 1x1, padding 1x1, "
            "dilation 1x1, groups 1) in bf16");
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
