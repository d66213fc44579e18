#include "lib/tensor/tensor.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace fusionllm::tensor {
namespace {

TEST(ShapeTest, CountsElementsAndRows) {
  EXPECT_EQ(Shape({2, 3, 4}).elements(), 24);
  EXPECT_EQ(Shape({2, 3, 4}).rows(), 6);
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().rows(), 1);
  EXPECT_EQ(Shape({2, 0}).elements(), 0);
}

TEST(ShapeTest, IndexesFromTheEnd) { EXPECT_EQ(Shape({2, 3, 4}).dim(-1), 4); }

TEST(DTypeTest, ParsesEveryNameItPrints) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64, DType::kU8}) {
    EXPECT_EQ(*ParseDType(Name(dtype)), dtype);
  }
  EXPECT_EQ(ParseDType("f33").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TensorTest, IsAlignedAndZeroed) {
  const Tensor tensor({DType::kF32, {3, 5}});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.f32()) % kAlignment, 0u);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(tensor.f32()[i], 0.0f);
  EXPECT_EQ(tensor.type().ToString(), "f32[3, 5]");
}

}  // namespace
}  // namespace fusionllm::tensor
