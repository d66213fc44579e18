// Batch norms of every number of channels are those of the reference, and with their neighbours in a residual network have the bits that
// they have alone. Without a toolkit and a card the kernels are carried out by the processor (emulated/).
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/testing/fused_case.h"

namespace fusionllm::kernels::cuda {
namespace {

using tensor::DType;
using tensor::TensorType;
using testing::Array;
using testing::CaseOf;
using testing::OpCase;
using testing::RandomFloats;
using testing::RowCase;
using testing::RunResult;
using testing::Target;
using testing::UpcastToF32;

class CudaBatchNormTest : public TargetFixture<::testing::TestWithParam<DType>> {
 protected:
  TensorType Elements(int64_t rows, int64_t channels) const { return {GetParam(), tensor::Shape{rows, 1, 1, channels}}; }
  static TensorType Floats(int64_t count) { return {DType::kF32, tensor::Shape{count}}; }

  void ExpectSameBits(const RowCase& row, const std::vector<std::vector<bool>>& accumulate, Mode mode = Mode::kTrain) {
    testing::ExpectFusedSameBits(
        target_, [this](PreparedFusedOps ops) { return MakeFusedKernel(std::move(ops), *device_); }, row, accumulate, mode);
  }
  bool Fuses(const RowCase& row) {
    const auto kernel = MakeFusedKernel(testing::PreparedRow(row), *device_);
    return kernel.ok() && *kernel != nullptr;
  }

  static OpCase NormCase(const Array& x) {
    const TensorType of_channel = Floats(x.type.shape.dim(-1));
    Array variance = RandomFloats(of_channel, 6);
    for (int64_t i = 0; i < of_channel.elements(); ++i) variance.f32()[i] = 0.5f + std::abs(variance.f32()[i]);
    return CaseOf("batch_norm", {x},
                  {RandomFloats(of_channel, 3), RandomFloats(of_channel, 4), RandomFloats(of_channel, 5), variance,
                   Array({DType::kI64, tensor::Shape{}})},
                  {x.type, of_channel, of_channel});
  }
  static OpCase GradCase(const OpCase& norm, const Array& dy, const RunResult& forward) {
    return CaseOf("batch_norm_grad", {norm.inputs[0], dy, forward.outputs[1], forward.outputs[2]}, {norm.parameters[0]},
                  {norm.op.outputs[0], norm.op.outputs[1], norm.op.outputs[2]});
  }
  static OpCase AddCase(const TensorType& type) { return CaseOf("add", {RandomFloats(type, 11), RandomFloats(type, 12)}, {}, {type}); }
  static OpCase ReluCase(const TensorType& type) { return CaseOf("relu", {RandomFloats(type, 13)}, {}, {type}); }
  static OpCase ReluGradCase(const TensorType& type) {
    return CaseOf("relu_grad", {RandomFloats(type, 14), RandomFloats(type, 15)}, {}, {type});
  }
};

struct Extents {
  int64_t rows, channels;
};
// One row and a few; less than a tile of a block and more; blocks of one quad, of a strip that is not full and of several; several
// stretches of uneven lengths.
constexpr Extents kExtents[] = {{1, 4}, {2, 64}, {7, 12}, {70, 64}, {1030, 132}, {5000, 4}, {4100, 8}, {3001, 64}, {130, 1028}};

TEST_P(CudaBatchNormTest, EveryNumberOfChannelsIsTheReferences) {
  std::vector<Extents> extents(std::begin(kExtents), std::end(kExtents));
  for (const Extents other : {Extents{1, 3}, {300, 3}, {70, 65}, {3001, 65}, {300, 2048}}) extents.push_back(other);
  for (const auto [rows, channels] : extents) {
    SCOPED_TRACE(absl::StrCat(rows, " rows of ", channels));
    Array x = RandomFloats(Elements(rows, channels), 1);
    const OpCase norm = NormCase(x);
    const RunResult want = testing::RunCase(ref::MakeKernel, norm), got = target_.Run(norm);
    ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
    const OpCase grad = GradCase(norm, RandomFloats(x.type, 2), want);
    const RunResult want_grad = testing::RunCase(ref::MakeKernel, grad), got_grad = target_.Run(grad);
    ASSERT_TRUE(want_grad.status.ok() && got_grad.status.ok()) << want_grad.status << got_grad.status;
    EXPECT_EQ(got.overrun + got_grad.overrun, "");
    // Sums of some thousand numbers in fp32; in bf16 a result next to the middle between two neighbours may be rounded to either. Of two
    // rows the difference is what cancellation left, and its reciprocal multiplies gradients.
    const double tolerance = 3e-5, of_elements = GetParam() == DType::kBF16 ? 0x1p-7 : tolerance;
    for (size_t i = 0; i < 3; ++i) {
      const double most = i == 0 ? of_elements : tolerance;
      EXPECT_EQ(testing::Difference(UpcastToF32(want.outputs[i]), UpcastToF32(got.outputs[i]), most), "") << "output " << i;
      EXPECT_EQ(testing::Difference(UpcastToF32(want_grad.outputs[i]), UpcastToF32(got_grad.outputs[i]), most), "") << "gradient " << i;
    }
    for (size_t i = 0; i < want.parameters.size(); ++i) {
      EXPECT_EQ(testing::Difference(want.parameters[i], got.parameters[i], tolerance), "") << "parameter " << i;
    }
  }
}

// Sums of squares that are subtracted, or means of which a large one is a part, would leave nothing of a variance of 1 beside a mean of
// 4096.
TEST_P(CudaBatchNormTest, VariancesAreRightFarFromZero) {
  if (GetParam() != DType::kF32) return;  // bf16 has no such numbers
  for (const int64_t channels : {3, 64}) {
    SCOPED_TRACE(channels);
    Array x = RandomFloats(Elements(4000, channels), 1);
    for (int64_t i = 0; i < x.type.elements(); ++i) x.f32()[i] += 4096;
    const OpCase norm = NormCase(x);
    const RunResult want = testing::RunCase(ref::MakeKernel, norm), got = target_.Run(norm);
    ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
    // The mean is good to its last bit but one; the variance, which forgives it in the second order, to the rounding of fp32 sums.
    EXPECT_EQ(testing::Difference(want.outputs[1], got.outputs[1], 0x1p-22), "");
    EXPECT_EQ(testing::Difference(want.outputs[2], got.outputs[2], 1e-5), "");
  }
}

TEST_P(CudaBatchNormTest, WithTheReluAfterIt) {
  for (const auto [rows, channels] : kExtents) {
    SCOPED_TRACE(absl::StrCat(rows, " rows of ", channels));
    const OpCase norm = NormCase(RandomFloats(Elements(rows, channels), 1));
    for (const Mode mode : {Mode::kTrain, Mode::kRecompute, Mode::kEvaluate}) {
      ExpectSameBits({{norm}, {ReluCase(norm.op.outputs[0]), 0}}, {std::vector<bool>(4, false)}, mode);
    }
  }
}

TEST_P(CudaBatchNormTest, WithTheSumAfterIt) {
  for (const auto [rows, channels] : kExtents) {
    for (const int through : {0, 1}) {
      SCOPED_TRACE(absl::StrCat(rows, " rows of ", channels, ", as addend ", through));
      const OpCase norm = NormCase(RandomFloats(Elements(rows, channels), 1));
      ExpectSameBits({{norm}, {AddCase(norm.op.outputs[0]), through}}, {std::vector<bool>(4, false)});
    }
  }
}

TEST_P(CudaBatchNormTest, GradientWithThatOfTheReluAfterIt) {
  for (const auto [rows, channels] : kExtents) {
    SCOPED_TRACE(absl::StrCat(rows, " rows of ", channels));
    const TensorType type = Elements(rows, channels);
    const OpCase norm = NormCase(RandomFloats(type, 1));
    const RunResult forward = target_.Run(norm);
    ASSERT_TRUE(forward.status.ok()) << forward.status;
    ExpectSameBits({{ReluGradCase(type)}, {GradCase(norm, Array(type), forward), 1}},
                   {{false, false, false, false}, {false, false, true, true}});
  }
}

TEST_P(CudaBatchNormTest, WithTheSumAndTheReluAfterIt) {
  for (const auto [rows, channels] : kExtents) {
    for (const int through : {0, 1}) {
      SCOPED_TRACE(absl::StrCat(rows, " rows of ", channels, ", as addend ", through));
      const OpCase norm = NormCase(RandomFloats(Elements(rows, channels), 1));
      const TensorType& type = norm.op.outputs[0];
      const RowCase row = {{norm}, {AddCase(type), through}, {ReluCase(type), 0}};
      const bool large = rows * channels > 20000;  // which differ in none of this
      if (through == 0 || !large) ExpectSameBits(row, {std::vector<bool>(5, false)});
      for (const Mode mode : {Mode::kRecompute, Mode::kEvaluate}) {
        if (!large) ExpectSameBits(row, {std::vector<bool>(5, false)}, mode);
      }
    }
  }
}

TEST_P(CudaBatchNormTest, GradientWithTheSumAndThatOfTheReluBeforeIt) {
  for (const auto [rows, channels] : kExtents) {
    SCOPED_TRACE(absl::StrCat(rows, " rows of ", channels));
    const TensorType type = Elements(rows, channels);
    const OpCase norm = NormCase(RandomFloats(type, 1));
    const RunResult forward = target_.Run(norm);
    ASSERT_TRUE(forward.status.ok()) << forward.status;
    ExpectSameBits({{AddCase(type)}, {ReluGradCase(type), 1}, {GradCase(norm, Array(type), forward), 1}},
                   {{false, false, false, false, false}, {false, false, false, true, true}});
  }
}

// dx is not wanted: what comes to the norm may be wanted none the less.
TEST_P(CudaBatchNormTest, ParameterGradientsAloneHaveTheSameBits) {
  const TensorType type = Elements(70, 64);
  const OpCase norm = NormCase(RandomFloats(type, 1));
  const RunResult forward = target_.Run(norm);
  const OpCase add = AddCase(type);
  OpCase relu = ReluGradCase(type), relu_of_sum = relu;
  relu_of_sum.inputs[1] = target_.Run(add).outputs[0];
  for (const bool of_sum : {false, true}) {
    const RunResult through = target_.Run(of_sum ? relu_of_sum : relu);
    const OpCase grad = GradCase(norm, through.outputs[0], forward);
    const RunResult want = target_.Run(grad);
    ASSERT_TRUE(want.status.ok()) << want.status;
    RowCase row = {{relu}, {grad, 1}};
    if (of_sum) row = {{add}, {relu, 1}, {grad, 1}};
    for (const bool wanted : {true, false}) {
      SCOPED_TRACE(absl::StrCat(of_sum ? "of a sum, " : "", wanted ? "with what comes to the norm" : "alone"));
      const auto fused = MakeFusedKernel(testing::PreparedRow(row, std::vector<bool>(row.size() - 1, wanted)), *device_);
      ASSERT_TRUE(fused.ok() && *fused != nullptr);
      std::vector<bool> outputs = {wanted, false, true, true};
      if (of_sum) outputs.insert(outputs.begin(), wanted);
      const RunResult got = testing::RunKernel(**fused, testing::Together(row), {.wanted = outputs, .memory = target_.memory});
      ASSERT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.overrun, "");
      const size_t dx = outputs.size() - 3;
      if (wanted && of_sum) {
        EXPECT_EQ(got.outputs[0].bytes, relu_of_sum.inputs[1].bytes);
      }
      if (wanted) {
        EXPECT_EQ(got.outputs[dx - 1].bytes, through.outputs[0].bytes);
      }
      EXPECT_EQ(got.outputs[dx + 1].bytes, want.outputs[1].bytes);
      EXPECT_EQ(got.outputs[dx + 2].bytes, want.outputs[2].bytes);
    }
  }
}

TEST_P(CudaBatchNormTest, SumsWithTheReluAfterThemAndItsGradient) {
  for (const int64_t count : {1, 7, 8, 9, 4096, 9001}) {
    SCOPED_TRACE(count);
    const TensorType type = Elements(1, count);
    ExpectSameBits({{AddCase(type)}, {ReluCase(type), 0}}, {{false, false}});
    ExpectSameBits({{AddCase(type)}, {ReluGradCase(type), 1}}, {{false, false}});
  }
}

TEST_P(CudaBatchNormTest, NotANumberPassesARelu) {
  const TensorType type = Elements(4, 8);
  OpCase add = AddCase(type);
  std::fill(add.inputs[0].bytes.begin(), add.inputs[0].bytes.begin() + 8, std::byte{0xff});
  ExpectSameBits({{add}, {ReluCase(type), 0}}, {{false, false}});
  ExpectSameBits({{add}, {ReluGradCase(type), 1}}, {{false, false}});
  const OpCase norm = NormCase(RandomFloats(type, 1));
  const RunResult forward = target_.Run(norm);
  OpCase residual = AddCase(type);
  residual.inputs[1] = add.inputs[0];
  ExpectSameBits({{norm}, {residual, 0}, {ReluCase(type), 0}}, {std::vector<bool>(5, false)});
  OpCase relu_grad = ReluGradCase(type);
  ExpectSameBits({{add}, {relu_grad, 1}, {GradCase(norm, Array(type), forward), 1}}, {std::vector<bool>(5, false)});
  relu_grad.inputs[0] = add.inputs[0];
  ExpectSameBits({{AddCase(type)}, {relu_grad, 1}, {GradCase(norm, Array(type), forward), 1}}, {std::vector<bool>(5, false)});
  EXPECT_NE(target_.Run(add).outputs[0].bytes[0], std::byte{0});
}

// Where memory is given again, a row's outputs lie where its kernel lets them.
TEST_P(CudaBatchNormTest, RowsRunInPlaceOfWhatTheyReadOnce) {
  const TensorType type = Elements(8, 64);
  const OpCase norm = NormCase(Array(type));
  const OpCase grad = GradCase(norm, Array(type), target_.Run(norm));
  const auto places = [&](const RowCase& row) {
    const auto kernel = MakeFusedKernel(testing::PreparedRow(row), *device_);
    const OpCase all = testing::Together(row);
    std::vector<std::pair<int, int>> found;
    for (int output = 0; output < static_cast<int>(all.op.outputs.size()); ++output) {
      for (int input = 0; input < static_cast<int>(all.inputs.size()); ++input) {
        if ((*kernel)->CanRunInPlace(output, input)) found.emplace_back(output, input);
      }
    }
    return found;
  };
  using Places = std::vector<std::pair<int, int>>;
  EXPECT_EQ(places({{norm}, {AddCase(type), 0}, {ReluCase(type), 0}}), (Places{{3, 0}, {3, 2}, {4, 0}, {4, 2}}));
  EXPECT_EQ(places({{norm}, {AddCase(type), 1}, {ReluCase(type), 0}}), (Places{{3, 0}, {3, 1}, {4, 0}, {4, 1}}));
  EXPECT_EQ(places({{AddCase(type)}, {ReluGradCase(type), 1}, {grad, 1}}),
            (Places{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}}));
}

TEST_P(CudaBatchNormTest, OthersAreLeftAlone) {
  const TensorType type = Elements(8, 64), odd = Elements(8, 66);
  const auto add_of = [](const TensorType& t, const TensorType& other) { return CaseOf("add", {Array(t), Array(other)}, {}, {t}); };
  const OpCase norm = NormCase(Array(type)), odd_norm = NormCase(Array(odd));
  const OpCase grad = GradCase(norm, Array(type), target_.Run(norm)), odd_grad = GradCase(odd_norm, Array(odd), target_.Run(odd_norm));
  const OpCase add = AddCase(type), relu = ReluCase(type), relu_grad = ReluGradCase(type), broadcast = add_of(type, Elements(1, 64));
  EXPECT_TRUE(Fuses({{norm}, {relu, 0}}));
  EXPECT_TRUE(Fuses({{relu_grad}, {grad, 1}}));
  EXPECT_FALSE(Fuses({{odd_norm}, {ReluCase(odd), 0}})) << "no whole quads";
  EXPECT_FALSE(Fuses({{norm}, {broadcast, 0}})) << "a broadcast";
  EXPECT_FALSE(Fuses({{relu_grad}, {grad, 0}})) << "what was normalized comes from a gradient";
  EXPECT_TRUE(Fuses({{add}, {relu_grad, 1}}));
  EXPECT_FALSE(Fuses({{add}, {relu_grad, 0}})) << "the sum is what the relu gave";
  EXPECT_FALSE(Fuses({{broadcast}, {relu, 0}})) << "a broadcast";
  EXPECT_FALSE(Fuses({{relu}, {norm, 0}}));

  EXPECT_TRUE(Fuses({{norm}, {add, 1}, {relu, 0}}));
  EXPECT_TRUE(Fuses({{add}, {relu_grad, 1}, {grad, 1}}));
  EXPECT_FALSE(Fuses({{odd_norm}, {AddCase(odd), 0}, {ReluCase(odd), 0}})) << "no whole quads";
  EXPECT_FALSE(Fuses({{AddCase(odd)}, {ReluGradCase(odd), 1}, {odd_grad, 1}})) << "no whole quads";
  EXPECT_FALSE(Fuses({{norm}, {broadcast, 0}, {relu, 0}})) << "a broadcast";
  EXPECT_FALSE(Fuses({{broadcast}, {relu_grad, 1}, {grad, 1}})) << "a broadcast";
  EXPECT_FALSE(Fuses({{add}, {relu_grad, 0}, {grad, 1}})) << "the sum is what the relu gave";
  EXPECT_FALSE(Fuses({{add}, {relu_grad, 1}, {grad, 0}})) << "what was normalized comes from a gradient";
  EXPECT_FALSE(Fuses({{norm}, {relu, 0}, {add, 0}}));
  EXPECT_FALSE(Fuses({{norm}, {add, 0}, {relu, 0}, {relu, 0}}));
}

INSTANTIATE_TEST_SUITE_P(Types, CudaBatchNormTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(tensor::Name(info.param)); });

}  // namespace
}  // namespace fusionllm::kernels::cuda
