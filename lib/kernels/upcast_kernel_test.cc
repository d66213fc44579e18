// Every op on bf16 tensors, on the back ends of the host.
#include "lib/kernels/upcast_kernel.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/testing/bf16_conformance.h"
#include "lib/kernels/testing/cpu_maker.h"

namespace fusionllm::kernels {
namespace {

using tensor::DType;
using tensor::TensorType;
using testing::Cpu;
using ::testing::HasSubstr;
using testing::KernelMaker;
using testing::OpCase;
using testing::RunCase;
using testing::RunOptions;
using testing::RunResult;
using testing::Target;

class UpcastKernelTest : public ::testing::TestWithParam<int> {  // the size of the cases
 protected:
  const std::vector<Target> targets_ = {Target{ref::MakeKernel}, Target{Cpu(2)}};
};

TEST_P(UpcastKernelTest, GivesTheBitsOfTheFp32KernelRoundedOnce) {
  for (const Target& target : targets_) ExpectBf16RoundedOnce(target, GetParam());
}
TEST_P(UpcastKernelTest, DoesSoInEvaluationToo) {
  for (const Target& target : targets_) ExpectBf16RoundedOnce(target, GetParam(), Mode::kEvaluate);
}
TEST_P(UpcastKernelTest, IsWithinOneRoundingOfTheReferenceInFp32) {
  for (const Target& target : targets_) ExpectBf16Agreement(target, GetParam());
}
TEST_P(UpcastKernelTest, TheNumberOfThreadsDoesNotChangeABit) { ExpectBf16SameBits(Target{Cpu(1)}, Target{Cpu(3)}, GetParam()); }
TEST_P(UpcastKernelTest, GradientsOfParametersAddToWhatIsThereInFp32) {
  for (const Target& target : targets_) EXPECT_GT(ExpectBf16GradientsAdd(target, GetParam()), 20);
}
TEST_P(UpcastKernelTest, MissingOutputsChangeNoOther) {
  for (const Target& target : targets_) ExpectBf16MissingOutputsChangeNoOther(target, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Sizes, UpcastKernelTest, ::testing::Values(1, 3));

OpCase Scale(DType from, DType to) {
  OpCase op_case{
      .op = {.name = "s", .kind = OpKind::kScale, .attributes = {{"factor", 3.0}}, .inputs = {{from, {4}}}, .outputs = {{to, {4}}}}};
  op_case.inputs.emplace_back(op_case.op.inputs[0]);
  return op_case;
}

TEST(UpcastOpTest, ASumIsNotKeptInBf16) {
  RunOptions options{.accumulate = {true}};
  options.initial.emplace_back(TensorType{DType::kBF16, {4}});
  const RunResult result = RunCase(ref::MakeKernel, Scale(DType::kF32, DType::kBF16), options);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(result.status.message(), HasSubstr("op 's' (scale): sums are kept in f32"));
}

TEST(UpcastOpTest, OtherFloatsAreRefusedByTheOpsName) {
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), Cpu(1)}) {
    const RunResult result = RunCase(make, Scale(DType::kF16, DType::kBF16));
    EXPECT_EQ(result.status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(result.status.message(), HasSubstr("op 's' (scale): computes in f32 only, not on f16[4]"));
  }
}

TEST(UpcastOpTest, ElementsThatAreOnlyMovedAreNotWidened) {
  PreparedOp op{.kind = OpKind::kConcat, .inputs = {{DType::kBF16, {4}}, {DType::kBF16, {2}}}, .outputs = {{DType::kBF16, {6}}}};
  EXPECT_FALSE(NeedsUpcast(op));
  op.inputs[1].dtype = DType::kF32;
  EXPECT_TRUE(NeedsUpcast(op)) << "of two sizes";
  op.kind = OpKind::kAdd;
  op.inputs[1].dtype = DType::kBF16;
  EXPECT_TRUE(NeedsUpcast(op));
  for (TensorType* type : {&op.inputs[0], &op.inputs[1], &op.outputs[0]}) type->dtype = DType::kF32;
  EXPECT_FALSE(NeedsUpcast(op));
}

}  // namespace
}  // namespace fusionllm::kernels
