// Ops by one kernel have the bits that they have by one for each, whatever is wanted of them and wherever it lies. Without a toolkit and a
// card the kernels are carried out by the processor (emulated/).
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/testing/fused_case.h"

namespace fusionllm::kernels::cuda {
namespace {

using tensor::DType;
using tensor::TensorType;
using testing::Array;
using testing::CaseOf;
using testing::OpCase;
using testing::RandomFloats;
using testing::RunOptions;
using testing::RunResult;
using testing::Target;
using testing::UpcastToF32;

class CudaFusionTest : public TargetFixture<::testing::TestWithParam<DType>> {
 protected:
  TensorType Elements(int64_t rows, int64_t width) const { return {GetParam(), tensor::Shape{rows, width}}; }
  static TensorType Floats(int64_t count) { return {DType::kF32, tensor::Shape{count}}; }

  void ExpectSameBits(const testing::RowCase& row, const std::vector<std::vector<bool>>& accumulate) {
    testing::ExpectFusedSameBits(
        target_, [this](PreparedFusedOps ops) { return MakeFusedKernel(std::move(ops), *device_); }, row, accumulate);
  }
  static PreparedFusedOps Pair(const PreparedOp& first, const PreparedOp& second, int through, bool wanted) {
    return {{.op = first, .keeps_output = wanted}, {.op = second, .through = through}};
  }

  OpCase LayerNormCase(const Array& x) const {
    const int64_t rows = x.type.shape.dim(0), width = x.type.shape.dim(1);
    return CaseOf("layer_norm", {x}, {RandomFloats(Floats(width), 3), RandomFloats(Floats(width), 4)},
                  {x.type, Floats(rows), Floats(rows)});
  }
};

// Widths that a lane holds in one to sixteen quads, with lanes that have none, and rows that no warp or several have.
constexpr int64_t kWidths[] = {4, 12, 128, 132, 384, 768, 900, 1024, 1028, 2048};
constexpr int64_t kRows[] = {1, 3, 70};

TEST_P(CudaFusionTest, AddAndLayerNorm) {
  for (const int64_t width : kWidths) {
    for (const int64_t rows : kRows) {
      SCOPED_TRACE(absl::StrCat(rows, " rows of ", width));
      const TensorType type = Elements(rows, width);
      const OpCase add = CaseOf("add", {RandomFloats(type, 1), RandomFloats(type, 2)}, {}, {type});
      ExpectSameBits({{add}, {LayerNormCase(Array(type)), 0}}, {std::vector<bool>(4, false)});
    }
  }
}

TEST_P(CudaFusionTest, GradientOfLayerNormAndAdd) {
  for (const int64_t width : kWidths) {
    if (width > 1024) continue;
    for (const int64_t rows : kRows) {
      for (const int through : {0, 1}) {
        SCOPED_TRACE(absl::StrCat(rows, " rows of ", width, ", as addend ", through));
        const TensorType type = Elements(rows, width);
        const Array x = RandomFloats(type, 1);
        const OpCase norm = LayerNormCase(x);
        const RunResult forward = target_.Run(norm);
        ASSERT_TRUE(forward.status.ok()) << forward.status;
        const OpCase grad = CaseOf("layer_norm_grad", {x, RandomFloats(type, 5), forward.outputs[1], forward.outputs[2]},
                                   {norm.parameters[0]}, {type, Floats(width), Floats(width)});
        const OpCase add = CaseOf("add", {RandomFloats(type, 6), RandomFloats(type, 6)}, {}, {type});
        ExpectSameBits({{grad}, {add, through}}, {{false, false, false, false}, {false, true, true, false}});
      }
    }
  }
}

// A linear op and its GELU, forward and back: not the bits of two ops, so only where that is allowed; the same but for one rounding of what
// lies between.
TEST_P(CudaFusionTest, GeluComesWithItsProductWhereBitsMayDiffer) {
  if (GetParam() == DType::kF32) return;  // as they are
  constexpr int64_t kRowsOfCase = 24, kIn = 40, kOut = 72;
  const TensorType weight{DType::kF32, tensor::Shape{kIn, kOut}}, x = Elements(kRowsOfCase, kIn), y = Elements(kRowsOfCase, kOut);
  OpCase linear = CaseOf("linear", {RandomFloats(x, 1)}, {RandomFloats(weight, 2), RandomFloats(Floats(kOut), 3)}, {y});
  linear.op.attributes = {{"layout", std::string("io")}, {"out", kOut}};
  OpCase gelu = CaseOf("gelu", {Array(y)}, {}, {y});
  OpCase grad_input = CaseOf("linear_grad_input", {RandomFloats(x, 4)}, {RandomFloats({DType::kF32, tensor::Shape{kOut, kIn}}, 5)}, {y});
  grad_input.op.attributes = {{"layout", std::string("io")}};
  OpCase gelu_grad = CaseOf("gelu_grad", {RandomFloats(y, 6), Array(y)}, {}, {y});
  for (OpCase* op_case : {&gelu, &gelu_grad}) op_case->op.attributes = {{"approximate", std::string("tanh")}};

  EXPECT_EQ(*MakeFusedKernel(Pair(linear.op, gelu.op, 0, true), *device_), nullptr) << "bits are to be the same";
  device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
  EXPECT_EQ(*MakeFusedKernel(Pair(linear.op, gelu.op, 0, false), *device_), nullptr) << "the library writes what lies between";
  EXPECT_EQ(*MakeFusedKernel(Pair(grad_input.op, gelu_grad.op, 1, true), *device_), nullptr) << "the library does not";
  EXPECT_EQ(*MakeFusedKernel(Pair(grad_input.op, gelu_grad.op, 0, false), *device_), nullptr) << "it is no gradient there";

  const auto expect_near = [&](const OpCase& first, OpCase second, int through, bool wanted) {
    const auto fused = MakeFusedKernel(Pair(first.op, second.op, through, wanted), *device_);
    ASSERT_TRUE(fused.ok()) << fused.status();
    if (*fused == nullptr && device_->info().name != "emulated card") return;  // a library need not have a way
    ASSERT_NE(*fused, nullptr);
    const RunResult of_first = target_.Run(first);
    ASSERT_TRUE(of_first.status.ok()) << of_first.status;
    second.inputs[static_cast<size_t>(through)] = of_first.outputs[0];
    const RunResult of_second = target_.Run(second);
    const RunResult got =
        testing::RunKernel(**fused, testing::Together({{first}, {second, through}}), {.wanted = {wanted, true}, .memory = target_.memory});
    ASSERT_TRUE(of_second.status.ok() && got.status.ok()) << of_second.status << got.status;
    EXPECT_EQ(got.overrun, "");
    // Of the same numbers by another algorithm, whose sum may lie on the other side of the middle between two bf16.
    if (wanted) {
      EXPECT_EQ(testing::Difference(UpcastToF32(of_first.outputs[0]), UpcastToF32(got.outputs[0]), 0x1p-7), "");
    }
    // Two roundings to bf16 more or less.
    EXPECT_EQ(testing::Difference(UpcastToF32(of_second.outputs[0]), UpcastToF32(got.outputs[1]), 0x1p-6), "");
  };
  expect_near(linear, gelu, 0, true);
  expect_near(grad_input, gelu_grad, 1, false);
}

TEST_P(CudaFusionTest, SumsOfTheGradientComeWithTheWeightsWhereBitsMayDiffer) {
  for (const char* layout : {"io", "oi"}) {
    SCOPED_TRACE(layout);
    constexpr int64_t kRowsOfCase = 33, kIn = 10, kOut = 20;
    const bool io = std::string(layout) == "io";
    const TensorType dw{DType::kF32, io ? tensor::Shape{kIn, kOut} : tensor::Shape{kOut, kIn}};
    OpCase grad = CaseOf("linear_grad_weight", {RandomFloats(Elements(kRowsOfCase, kIn), 1), RandomFloats(Elements(kRowsOfCase, kOut), 2)},
                         {}, {dw, Floats(kOut)});
    grad.op.attributes = {{"layout", std::string(layout)}};
    for (const bool add : {false, true}) {
      for (const bool weight_wanted : {true, false}) {
        const RunOptions options{.wanted = {weight_wanted, true},
                                 .accumulate = {add, add},
                                 .initial = {RandomFloats(dw, 3), RandomFloats(Floats(kOut), 4)},
                                 .memory = target_.memory};
        device_->set_algorithm_choice(AlgorithmChoice::kHeuristic);
        const RunResult want = target_.Run(grad, options);
        device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
        const RunResult got = target_.Run(grad, options);
        ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
        EXPECT_EQ(got.overrun, "");
        // Some ten products, which another algorithm adds in another order.
        if (weight_wanted) {
          EXPECT_EQ(testing::Difference(want.outputs[0], got.outputs[0], 1e-5), "");
        }
        EXPECT_EQ(testing::Difference(want.outputs[1], got.outputs[1], 1e-5), "");
      }
    }
  }
}

TEST_P(CudaFusionTest, OthersAreLeftAlone) {
  const auto fused = [&](const PreparedOp& first, const PreparedOp& second) {
    const auto kernel = MakeFusedKernel(Pair(first, second, 0, /*wanted=*/true), *device_);
    return kernel.ok() && *kernel != nullptr;
  };
  const auto add_of = [&](const TensorType& type, const TensorType& other) {
    return CaseOf("add", {Array(type), Array(other)}, {}, {type}).op;
  };
  const TensorType type = Elements(8, 64);
  EXPECT_TRUE(fused(add_of(type, type), LayerNormCase(Array(type)).op));
  EXPECT_FALSE(fused(add_of(type, Elements(1, 64)), LayerNormCase(Array(type)).op)) << "a broadcast";
  EXPECT_FALSE(fused(add_of(Elements(8, 66), Elements(8, 66)), LayerNormCase(Array(Elements(8, 66))).op)) << "no whole quads";
  EXPECT_FALSE(fused(add_of(Elements(8, 4096), Elements(8, 4096)), LayerNormCase(Array(Elements(8, 4096))).op)) << "too wide";
  EXPECT_FALSE(fused(LayerNormCase(Array(type)).op, add_of(type, type)));
}

INSTANTIATE_TEST_SUITE_P(Types, CudaFusionTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(tensor::Name(info.param)); });

}  // namespace
}  // namespace fusionllm::kernels::cuda
