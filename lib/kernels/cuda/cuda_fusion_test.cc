// Two ops by one kernel have the bits that they have by two, whatever is wanted of them and wherever it lies; and layer norms of every
// width are those of the reference. Without a toolkit and a card the kernels are carried out by the processor (emulated/).
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/cuda.h"
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
using testing::RunResult;
using testing::Target;
using testing::Widened;

class CudaFusionTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    auto device = Device::Open(0);
    // The one answer on which a test may be left out: there is no card, and it says so.
    if (absl::IsNotFound(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    target_ = {.make = [this](PreparedOp op) { return MakeKernel(std::move(op), *device_); }, .memory = &device_->memory()};
  }

  TensorType Elements(int64_t rows, int64_t width) const { return {GetParam(), tensor::Shape{rows, width}}; }
  static TensorType Floats(int64_t count) { return {DType::kF32, tensor::Shape{count}}; }

  void ExpectSameBits(const OpCase& first, const OpCase& second, int through, const std::vector<std::vector<bool>>& accumulate) {
    testing::ExpectFusedSameBits(
        target_,
        [this](PreparedOp one, PreparedOp other, int at) { return MakeFusedKernel(std::move(one), std::move(other), at, *device_); }, first,
        second, through, accumulate);
  }

  OpCase LayerNormCase(const Array& x) const {
    const int64_t rows = x.type.shape.dim(0), width = x.type.shape.dim(1);
    return CaseOf("layer_norm", {x}, {RandomFloats(Floats(width), 3), RandomFloats(Floats(width), 4)},
                  {x.type, Floats(rows), Floats(rows)});
  }

  std::unique_ptr<Device> device_;
  Target target_;
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

TEST_P(CudaFusionTest, OthersAreLeftAlone) {
  const auto fused = [&](PreparedOp first, PreparedOp second) {
    const auto kernel = MakeFusedKernel(std::move(first), std::move(second), 0, *device_);
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
