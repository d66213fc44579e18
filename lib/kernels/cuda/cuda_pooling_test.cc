// The pools of residual networks, by quads of channels, against the reference, which goes element by element in the same order. Without a
// toolkit and a card the kernels are carried out by the processor (emulated/).
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

namespace fusionllm::kernels::cuda {
namespace {

using opdag::Attributes;
using tensor::DType;
using tensor::TensorType;
using testing::Array;
using testing::CaseOf;
using testing::OpCase;
using testing::RandomFloats;
using testing::RunResult;
using testing::Target;
using Ints = std::vector<int64_t>;

class CudaPoolingTest : public TargetFixture<::testing::TestWithParam<DType>> {
 protected:
  // Returns what the reference makes of it.
  RunResult ExpectReference(const OpCase& op_case, double tolerance) {
    const RunResult want = testing::RunCase(ref::MakeKernel, op_case), got = target_.Run(op_case);
    EXPECT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
    EXPECT_EQ(got.overrun, "");
    for (size_t i = 0; i < want.outputs.size(); ++i) {
      const Array& w = want.outputs[i];
      EXPECT_EQ(testing::Difference(testing::UpcastToF32(w), testing::UpcastToF32(got.outputs[i]), tolerance), "") << "output " << i;
    }
    return want;
  }
};

// In bf16 a result next to the middle between two neighbours may be rounded to either.
double ToleranceOf(DType type) { return type == DType::kBF16 ? 0x1p-7 : 1e-6; }

struct Pool {
  int64_t batch, height, width, channels;
  Ints kernel, stride, padding;
};

TEST_P(CudaPoolingTest, MaximaAndTheirGradients) {
  const Pool pools[] = {{2, 13, 11, 64, {3, 3}, {2, 2}, {1, 1}}, {1, 112, 9, 4, {3, 3}, {2, 2}, {1, 1}},
                        {3, 5, 40, 132, {3, 2}, {1, 2}, {1, 0}}, {2, 8, 8, 8, {2, 2}, {2, 2}, {0, 0}},
                        {1, 3, 3, 516, {3, 3}, {3, 3}, {0, 0}},  {2, 7, 9, 6, {3, 3}, {2, 2}, {1, 1}}};
  for (const Pool& pool : pools) {
    SCOPED_TRACE(absl::StrCat(pool.height, " by ", pool.width, ", ", pool.channels, " channels"));
    const auto out = [&](int64_t in, int axis) { return (in + 2 * pool.padding[axis] - pool.kernel[axis]) / pool.stride[axis] + 1; };
    const TensorType in{GetParam(), tensor::Shape{pool.batch, pool.height, pool.width, pool.channels}};
    const tensor::Shape out_shape{pool.batch, out(pool.height, 0), out(pool.width, 1), pool.channels};
    OpCase max = CaseOf("max_pool2d", {RandomFloats(in, 1)}, {}, {{GetParam(), out_shape}, {DType::kI32, out_shape}});
    // Equal neighbours, of which the first wins.
    std::copy_n(max.inputs[0].bytes.begin(), max.inputs[0].bytes.size() / 4,
                max.inputs[0].bytes.begin() + static_cast<std::ptrdiff_t>(in.bytes() / in.shape.dim(0) / in.shape.dim(1)));
    max.op.attributes = {{"kernel", pool.kernel}, {"stride", pool.stride}, {"padding", pool.padding}};
    const RunResult forward = ExpectReference(max, 0);

    OpCase grad = CaseOf("max_pool2d_grad", {RandomFloats({GetParam(), out_shape}, 2), forward.outputs[1]}, {}, {in});
    grad.op.attributes = max.op.attributes;
    grad.op.attributes.Set("in_shape", in.shape.dims());
    ExpectReference(grad, ToleranceOf(GetParam()));
  }
}

TEST_P(CudaPoolingTest, NotANumberBeatsEverything) {
  const TensorType in{GetParam(), tensor::Shape{1, 4, 4, 4}}, out{GetParam(), tensor::Shape{1, 2, 2, 4}};
  OpCase max = CaseOf("max_pool2d", {RandomFloats(in, 1)}, {}, {out, {DType::kI32, out.shape}});
  const size_t pixel = in.bytes() / 16;
  std::fill_n(max.inputs[0].bytes.begin() + static_cast<std::ptrdiff_t>(5 * pixel), pixel / 4, std::byte{0xff});  // one channel of (1, 1)
  max.op.attributes = {{"kernel", Ints{2, 2}}, {"stride", Ints{2, 2}}, {"padding", Ints{0, 0}}};
  RunResult got = target_.Run(max);
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_TRUE(std::isnan(testing::UpcastToF32(got.outputs[0]).f32()[0]));
  EXPECT_FALSE(std::isnan(testing::UpcastToF32(got.outputs[0]).f32()[1]));
  EXPECT_EQ(got.outputs[1].i32()[0], 5);
}

TEST_P(CudaPoolingTest, MeansOfImagesAndTheirGradients) {
  for (const Ints& shape : {Ints{3, 7, 7, 2048}, Ints{70, 1, 3, 4}, Ints{2, 5, 5, 12}, Ints{2, 5, 5, 6}, Ints{1, 9, 9, 132}}) {
    const TensorType image{GetParam(), tensor::Shape(shape)}, mean{GetParam(), tensor::Shape{shape[0], shape[3]}};
    SCOPED_TRACE(image.ToString());
    ExpectReference(CaseOf("global_avg_pool", {RandomFloats(image, 1)}, {}, {mean}), ToleranceOf(GetParam()));
    OpCase grad = CaseOf("global_avg_pool_grad", {RandomFloats(mean, 2)}, {}, {image});
    grad.op.attributes = {{"height", shape[1]}, {"width", shape[2]}};
    ExpectReference(grad, ToleranceOf(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaPoolingTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return std::string(tensor::Name(info.param)); });

}  // namespace
}  // namespace fusionllm::kernels::cuda
