// Layer norms and losses over rows of every width are those of the reference. Without a toolkit and a card the kernels are carried out by
// the processor (emulated/).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

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
using testing::RunResult;
using testing::UpcastToF32;

class CudaRowsTest : public TargetFixture<::testing::TestWithParam<DType>> {
 protected:
  TensorType Elements(int64_t rows, int64_t width) const { return {GetParam(), tensor::Shape{rows, width}}; }
  static TensorType Floats(int64_t count) { return {DType::kF32, tensor::Shape{count}}; }
  // As elements are.
  static Array Rounded(const Array& wide, const TensorType& type) {
    if (type.dtype == DType::kF32) return wide;
    Array out(type);
    tensor::RoundToBf16({wide.f32(), static_cast<size_t>(type.elements())}, reinterpret_cast<uint16_t*>(out.bytes.data()));
    return out;
  }
};

TEST_P(CudaRowsTest, LayerNormsOfEveryWidthAreTheReferences) {
  for (const int64_t width : {1, 4, 6, 127, 128, 132, 768, 1024, 1028, 2048, 2052}) {
    SCOPED_TRACE(width);
    const TensorType type = Elements(70, width);
    const Array x = RandomFloats(type, 1);
    const OpCase norm =
        CaseOf("layer_norm", {x}, {RandomFloats(Floats(width), 3), RandomFloats(Floats(width), 4)}, {type, Floats(70), Floats(70)});
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
      EXPECT_EQ(testing::Difference(UpcastToF32(want.outputs[i]), UpcastToF32(got.outputs[i]), most), "") << "output " << i;
      EXPECT_EQ(testing::Difference(UpcastToF32(want_grad.outputs[i]), UpcastToF32(got_grad.outputs[i]), most), "") << "gradient " << i;
    }
  }
}

// Rows that begin anywhere within a group of elements, with equal greatest logits, ignored labels, and classes that are ruled out.
TEST_P(CudaRowsTest, CrossEntropiesOfEveryNumberOfClassesAreTheReferences) {
  for (const int64_t classes : {1, 2, 7, 8, 9, 16, 255, 2047, 2048, 2055, 5003}) {
    SCOPED_TRACE(classes);
    constexpr int64_t kRowsOfCase = 11;
    const TensorType type = Elements(kRowsOfCase, classes), labels{DType::kI32, tensor::Shape{kRowsOfCase}}, number{DType::kF32, {}};
    Array wide = UpcastToF32(RandomFloats(type, 1));
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
    const Array logits = Rounded(wide, type);
    const OpCase loss = CaseOf("cross_entropy", {logits, label}, {}, {number, number, Floats(kRowsOfCase), number});
    const RunResult want = testing::RunCase(ref::MakeKernel, loss), got = target_.Run(loss);
    ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
    Array dloss(number);
    *dloss.f32() = 0.25f;
    const OpCase grad = CaseOf("cross_entropy_grad", {logits, label, want.outputs[2], dloss}, {}, {type});
    const RunResult want_grad = testing::RunCase(ref::MakeKernel, grad), got_grad = target_.Run(grad);
    ASSERT_TRUE(want_grad.status.ok() && got_grad.status.ok()) << want_grad.status << got_grad.status;
    EXPECT_EQ(got.overrun + got_grad.overrun, "");
    EXPECT_EQ(want.outputs[1].bytes, got.outputs[1].bytes) << "right answers";
    EXPECT_EQ(want.outputs[3].bytes, got.outputs[3].bytes) << "labels that count";
    for (const size_t i : {0, 2}) EXPECT_EQ(testing::Difference(want.outputs[i], got.outputs[i], 1e-5), "") << "output " << i;
    const double of_elements = GetParam() == DType::kBF16 ? 0x1p-7 : 1e-5;  // the middle between two bf16 may be rounded to either
    EXPECT_EQ(testing::Difference(UpcastToF32(want_grad.outputs[0]), UpcastToF32(got_grad.outputs[0]), of_elements), "");
  }
}

TEST_P(CudaRowsTest, ANumberThatIsNoneMakesTheLossNone) {
  for (const int64_t at : {0, 3, 600, 2999}) {
    const TensorType type = Elements(1, 3000), number{DType::kF32, {}};
    Array wide = UpcastToF32(RandomFloats(type, 1));
    wide.f32()[at] = NAN;
    const Array logits = Rounded(wide, type);
    Array label({DType::kI32, tensor::Shape{1}});
    label.i32()[0] = 1;
    const RunResult got = target_.Run(CaseOf("cross_entropy", {logits, label}, {}, {number, number, Floats(1), number}));
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_TRUE(std::isnan(*got.outputs[0].f32())) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaRowsTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(tensor::Name(info.param)); });

}  // namespace
}  // namespace fusionllm::kernels::cuda
