#include "lib/estimator/cost_model.h"

#include "gtest/gtest.h"

namespace fusionllm::estimator {
namespace {

using opdag::OpClass;

OpRate& RateOf(CostModel& model, OpClass op_class) { return model.rates[static_cast<size_t>(op_class)]; }

TEST(CostModelTest, WhatWasMeasuredWinsOverTheRates) {
  CostModel model;
  RateOf(model, OpClass::kElementwise) = {.overhead_s = 1e-6, .seconds_per_byte = 1e-9, .relative_error = 0.2, .samples = 3};
  model.measured["gelu"] = 5e-3;
  const Estimate measured = EstimateOp(model, OpClass::kElementwise, "gelu", 0, 1e6);
  EXPECT_EQ(measured.seconds, 5e-3);
  EXPECT_TRUE(measured.measured);
  const Estimate fitted = EstimateOp(model, OpClass::kElementwise, "relu", 0, 4e6);
  EXPECT_DOUBLE_EQ(fitted.seconds, 4e-3 + 1e-6);
  EXPECT_FALSE(fitted.measured);
  EXPECT_EQ(fitted.relative_error, 0.2);
  EXPECT_EQ(EstimateOp(model, OpClass::kFree, "constant", 0, 4e6).seconds, 0);
}

TEST(CostModelTest, ClassesNeverMeasuredBorrowFromTheirLikes) {
  CostModel model;
  RateOf(model, OpClass::kMatmul) = {.seconds_per_flop = 1e-11, .relative_error = 0.03, .samples = 30};
  RateOf(model, OpClass::kNormalization) = {.seconds_per_byte = 1e-10, .relative_error = 0.1, .samples = 4};
  EXPECT_EQ(FillMissingRates(model), opdag::kOpClassCount - 3);  // all but those two and free ops
  EXPECT_EQ(RateOf(model, OpClass::kConvolution).seconds_per_flop, 1e-11);
  EXPECT_EQ(RateOf(model, OpClass::kElementwise).seconds_per_byte, 1e-10);
  EXPECT_EQ(RateOf(model, OpClass::kElementwise).relative_error, kUnknownError);
  EXPECT_EQ(RateOf(model, OpClass::kMatmul).relative_error, 0.03);
  CostModel nothing;
  EXPECT_EQ(FillMissingRates(nothing), 0);
}

TEST(CostModelTest, EveryClassIsFoundByItsName) {
  for (int c = 0; c < opdag::kOpClassCount; ++c) EXPECT_EQ(ClassNamed(opdag::Name(static_cast<OpClass>(c))), static_cast<OpClass>(c));
  EXPECT_EQ(ClassNamed("sorcery"), std::nullopt);
}

}  // namespace
}  // namespace fusionllm::estimator
