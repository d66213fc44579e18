#include "lib/checkpoint/tensor_fill.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::checkpoint {
namespace {

using tensor::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TensorEntry Stored(const std::string& dtype, tensor::Shape shape) {
  return {.name = "w", .dtype_name = dtype, .dtype = StoredDType(dtype), .shape = shape};
}

TEST(TensorFillTest, CopiesPiecesOfAnyLength) {
  const std::vector<float> source = {1, -2, 3.5F};
  std::vector<float> out(3);
  auto fill = TensorFill::Create("here", Stored("F32", {3}), {{DType::kF32, {3}}, out.data()});
  ASSERT_TRUE(fill.ok()) << fill.status();
  const auto bytes = std::as_bytes(std::span(source));
  ASSERT_TRUE(fill->Append(bytes.first(5)).ok());
  EXPECT_FALSE(fill->full());
  ASSERT_TRUE(fill->Append(bytes.subspan(5)).ok());
  EXPECT_TRUE(fill->full());
  EXPECT_EQ(out, source);
  EXPECT_THAT(fill->Append(bytes.first(1)).message(), HasSubstr("12 bytes was given 13"));
}

TEST(TensorFillTest, WidensHalfWidths) {
  const std::vector<uint16_t> halves = {0x3C00, 0xC000};  // 1, -2 as f16
  const std::vector<uint16_t> bf16 = {0x3F80, 0xC000};    // the same as bf16
  for (const auto& [dtype, source] : {std::pair("F16", halves), std::pair("BF16", bf16)}) {
    std::vector<float> out(2);
    auto fill = TensorFill::Create("here", Stored(dtype, {2}), {{DType::kF32, {2}}, out.data()});
    ASSERT_TRUE(fill.ok()) << fill.status();
    EXPECT_TRUE(fill->widens());
    const auto bytes = std::as_bytes(std::span(source));
    ASSERT_TRUE(fill->Append(bytes.first(2)).ok());
    ASSERT_TRUE(fill->Append(bytes.subspan(2)).ok());
    EXPECT_TRUE(fill->full());
    EXPECT_THAT(out, ElementsAre(1, -2));
  }
  std::vector<float> out(2);
  auto fill = TensorFill::Create("here", Stored("F16", {2}), {{DType::kF32, {2}}, out.data()});
  EXPECT_THAT(fill->Append(std::as_bytes(std::span(halves)).first(3)).message(), HasSubstr("inside of an element"));
}

TEST(TensorFillTest, OtherShapesAndTypesAreRefusedByName) {
  std::vector<float> out(4);
  const tensor::TensorView into = {{DType::kF32, {2, 2}}, out.data()};
  EXPECT_THAT(TensorFill::Create("far/away", Stored("F32", {4}), into).status().message(),
              HasSubstr("tensor 'w' of far/away is F32[4] but f32[2, 2] is wanted"));
  EXPECT_FALSE(TensorFill::Create("here", Stored("I32", {2, 2}), into).ok());
  EXPECT_FALSE(TensorFill::Create("here", Stored("F64", {2, 2}), into).ok());
  EXPECT_FALSE(TensorFill::Create("here", Stored("nonsense", {2, 2}), into).ok());
}

}  // namespace
}  // namespace fusionllm::checkpoint
