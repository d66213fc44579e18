// Two ops by one kernel have the bits that they have by two, whatever is wanted of them and wherever it lies; and layer norms of every
// width are those of the reference. Without a toolkit and a card the kernels are carried out by the processor (emulated/).
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/testing/fused_case.h"
#include "lib/tensor/bf16.h"

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
using testing::Widened;

class CudaFusionTest : public TargetFixture<::testing::TestWithParam<DType>> {
 protected:
  TensorType Elements(int64_t rows, int64_t width) const { return {GetParam(), tensor::Shape{rows, width}}; }
  static TensorType Floats(int64_t count) { return {DType::kF32, tensor::Shape{count}}; }

  void ExpectSameBits(const OpCase& first, const OpCase& second, int through, const std::vector<std::vector<bool>>& accumulate) {
    testing::ExpectFusedSameBits(
        target_,
        [this](PreparedOp one, PreparedOp other, int at) {
          return MakeFusedKernel(std::move(one), std::move(other), at, /*handed_on_wanted=*/true, *device_);
        },
        first, second, through, accumulate);
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
      ExpectSameBits(add, LayerNormCase(Array(type)), 0, {std::vector<bool>(4, false)});
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
        ExpectSameBits(grad, add, through, {{false, false, false, false}, {false, true, true, false}});
      }
    }
  }
}

TEST_P(CudaFusionTest, LayerNormsOfEveryWidthAreTheReferences) {
  for (const int64_t width : {1, 4, 6, 127, 128, 132, 768, 1024, 1028, 2048, 2052}) {
    SCOPED_TRACE(width);
    const TensorType type = Elements(70, width);
    const Array x = RandomFloats(type, 1);
    const OpCase norm = LayerNormCase(x);
    const RunResult want = testing::RunCase(ref::MakeKernel, norm), got = target_.Run(norm);
    ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
    const OpCase grad = CaseOf("layer_norm_grad", {x, RandomFloats(type, 5), want.outputs[1], want.outputs[2]}, {norm.parameters[0]},
                               {type, Floats(width), Floats(width)});
    const RunResult want_grad = testing::RunCase(ref::MakeKernel, grad), got_grad = target_.Run(grad);
    ASSERT_TRUE(want_grad.status.ok() && got_grad.status.ok()) << want_grad.status << got_grad.status;
    EXPECT_EQ(got.overrun + got_grad.overrun, "");
    // Sums of some thousand numbers in fp32; in bf16 a sum next to the middle between two neighbours may be rounded to either.
    const double tolerance = 3e-5, of_elements = GetParam() == DType::kBF16 ? 0x1p-7 : tolerance;
    for (size_t i = 0; i < 3; ++i) {
      const double most = i == 0 ? of_elements : tolerance;
      EXPECT_EQ(testing::Difference(Widened(want.outputs[i]), Widened(got.outputs[i]), most), "") << "output " << i;
      EXPECT_EQ(testing::Difference(Widened(want_grad.outputs[i]), Widened(got_grad.outputs[i]), most), "") << "gradient " << i;
    }
  }
}

// Rows that begin anywhere within a group of elements, with equal greatest logits, ignored labels, and classes that are ruled out.
TEST_P(CudaFusionTest, CrossEntropiesOfEveryNumberOfClassesAreTheReferences) {
  for (const int64_t classes : {1, 2, 7, 8, 9, 16, 255, 2047, 2048, 2055, 5003}) {
    SCOPED_TRACE(classes);
    constexpr int64_t kRowsOfCase = 11;
    const TensorType type = Elements(kRowsOfCase, classes), labels{DType::kI32, tensor::Shape{kRowsOfCase}}, number{DType::kF32, {}};
    Array wide = Widened(RandomFloats(type, 1));
    Array label(labels);
    for (int64_t row = 0; row < kRowsOfCase; ++row) {
      label.i32()[row] = row == 4 ? -100 : static_cast<int32_t>(row * 97 % classes);
      float* const logits = wide.f32() + row * classes;
      if (row % 3 == 0 && classes > 2) logits[classes / 2] = logits[classes - 1] = 9;
      if (row % 3 == 1 && classes > 8) std::fill_n(logits + 1, 5, -INFINITY);
      if (row % 3 == 1 && label.i32()[row] >= 1 && label.i32()[row] <= 5) label.i32()[row] = 0;
      if (row == 6 && classes > 2) label.i32()[row] = static_cast<int32_t>(classes / 2);  // the first of the greatest
      if (row == 9 && classes > 2) label.i32()[row] = static_cast<int32_t>(classes - 1);  // not the first
    }
    Array logits(type);
    if (GetParam() == DType::kF32) {
      logits = wide;
    } else {
      tensor::RoundToBf16({wide.f32(), static_cast<size_t>(type.elements())}, reinterpret_cast<uint16_t*>(logits.bytes.data()));
    }
    const OpCase loss = CaseOf("cross_entropy", {logits, label}, {}, {number, number, Floats(kRowsOfCase)});
    const RunResult want = testing::RunCase(ref::MakeKernel, loss), got = target_.Run(loss);
    ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
    Array dloss(number);
    *dloss.f32() = 0.25f;
    const OpCase grad = CaseOf("cross_entropy_grad", {logits, label, want.outputs[2], dloss}, {}, {type});
    const RunResult want_grad = testing::RunCase(ref::MakeKernel, grad), got_grad = target_.Run(grad);
    ASSERT_TRUE(want_grad.status.ok() && got_grad.status.ok()) << want_grad.status << got_grad.status;
    EXPECT_EQ(got.overrun + got_grad.overrun, "");
    EXPECT_EQ(want.outputs[1].bytes, got.outputs[1].bytes) << "right answers";
    for (const size_t i : {0, 2}) EXPECT_EQ(testing::Difference(want.outputs[i], got.outputs[i], 1e-5), "") << "output " << i;
    const double of_elements = GetParam() == DType::kBF16 ? 0x1p-7 : 1e-5;  // the middle between two bf16 may be rounded to either
    EXPECT_EQ(testing::Difference(Widened(want_grad.outputs[0]), Widened(got_grad.outputs[0]), of_elements), "");
  }
}

TEST_P(CudaFusionTest, ANumberThatIsNoneMakesTheLossNone) {
  for (const int64_t at : {0, 3, 600, 2999}) {
    const TensorType type = Elements(1, 3000), number{DType::kF32, {}};
    Array wide = Widened(RandomFloats(type, 1));
    wide.f32()[at] = NAN;
    Array logits(type);
    if (GetParam() == DType::kF32) {
      logits = wide;
    } else {
      tensor::RoundToBf16({wide.f32(), static_cast<size_t>(type.elements())}, reinterpret_cast<uint16_t*>(logits.bytes.data()));
    }
    Array label({DType::kI32, tensor::Shape{1}});
    label.i32()[0] = 1;
    const RunResult got = target_.Run(CaseOf("cross_entropy", {logits, label}, {}, {number, number, Floats(1)}));
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_TRUE(std::isnan(*got.outputs[0].f32())) << at;
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

  EXPECT_EQ(*MakeFusedKernel(linear.op, gelu.op, 0, true, *device_), nullptr) << "bits are to be the same";
  device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
  EXPECT_EQ(*MakeFusedKernel(linear.op, gelu.op, 0, false, *device_), nullptr) << "the library writes what lies between";
  EXPECT_EQ(*MakeFusedKernel(grad_input.op, gelu_grad.op, 1, true, *device_), nullptr) << "the library does not";
  EXPECT_EQ(*MakeFusedKernel(grad_input.op, gelu_grad.op, 0, false, *device_), nullptr) << "it is no gradient there";

  const auto expect_near = [&](const OpCase& first, OpCase second, int through, bool wanted) {
    const auto fused = MakeFusedKernel(first.op, second.op, through, wanted, *device_);
    ASSERT_TRUE(fused.ok()) << fused.status();
    if (*fused == nullptr && device_->info().name != "emulated card") return;  // a library need not have a way
    ASSERT_NE(*fused, nullptr);
    const RunResult of_first = target_.Run(first);
    ASSERT_TRUE(of_first.status.ok()) << of_first.status;
    second.inputs[static_cast<size_t>(through)] = of_first.outputs[0];
    const RunResult of_second = target_.Run(second);
    const RunResult got =
        testing::RunKernel(**fused, testing::Together(first, second, through), {.wanted = {wanted, true}, .memory = target_.memory});
    ASSERT_TRUE(of_second.status.ok() && got.status.ok()) << of_second.status << got.status;
    EXPECT_EQ(got.overrun, "");
    // Of the same numbers by another algorithm, whose sum may lie on the other side of the middle between two bf16.
    if (wanted) {
      EXPECT_EQ(testing::Difference(Widened(of_first.outputs[0]), Widened(got.outputs[0]), 0x1p-7), "");
    }
    // Two roundings to bf16 more or less.
    EXPECT_EQ(testing::Difference(Widened(of_second.outputs[0]), Widened(got.outputs[1]), 0x1p-6), "");
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
  const auto fused = [&](PreparedOp first, PreparedOp second) {
    const auto kernel = MakeFusedKernel(std::move(first), std::move(second), 0, /*handed_on_wanted=*/true, *device_);
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
