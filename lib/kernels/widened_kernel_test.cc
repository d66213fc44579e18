// Every op on bf16 tensors: the bits of the fp32 kernel on the same numbers, rounded once; and one back end against the other.
//
// Tolerance of bf16 results: 2^-8 of the number is what one rounding may change; two back ends whose fp32 results differ by the case's own
// tolerance may round to neighbours, 2^-7 apart.
#include "lib/kernels/widened_kernel.h"

#include <cmath>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/testing/conformance.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels {
namespace {

using tensor::DType;
using tensor::TensorType;
using testing::AllCases;
using testing::Array;
using ::testing::HasSubstr;
using testing::KernelMaker;
using testing::OpCase;
using testing::RunCase;
using testing::RunOptions;
using testing::RunResult;

KernelMaker Cpu(int threads) {
  return [pool = cpu::WorkerPool::Create(threads).value()](PreparedOp op) { return cpu::MakeKernel(std::move(op), pool); };
}

Array Rounded(const Array& array) {
  Array out({DType::kBF16, array.type.shape});
  tensor::RoundToBf16({array.f32(), static_cast<size_t>(array.type.elements())}, reinterpret_cast<uint16_t*>(out.bytes.data()));
  return out;
}

Array Widened(const Array& array) {
  if (array.type.dtype != DType::kBF16) return array;
  Array out({DType::kF32, array.type.shape});
  tensor::WidenBf16({reinterpret_cast<const uint16_t*>(array.bytes.data()), static_cast<size_t>(array.type.elements())}, out.f32());
  return out;
}

bool MultipliesMatrices(const std::string& type) { return type.starts_with("linear") || type.starts_with("conv2d") || type == "matmul"; }

bool IsParameterGradient(const OpCase& op_case, size_t output) {
  const std::string& type = op_case.op.type;
  if (type == "embedding_grad" || type == "linear_grad_weight" || type == "conv2d_grad_weight") return true;
  return (type == "layer_norm_grad" || type == "batch_norm_grad") && output > 0;
}

// A case and the same one in fp32 on the very numbers that its kernel is to compute with.
struct Pair {
  OpCase in_bf16, in_f32;
  bool any = false;  // a tensor in bf16
};

// Each f32 input and output but gradients of parameters becomes bf16, or, from a draw on, one in two.
Pair PairOf(const OpCase& op_case, uint32_t draw) {
  const base::CounterRng rng(draw, "lowered");
  int64_t drawn = 0;
  const auto lowered = [&](const TensorType& type) { return type.dtype == DType::kF32 && (draw == 0 || rng.Below(drawn++, 2) == 0); };
  Pair pair{.in_bf16 = op_case, .in_f32 = op_case};
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    if (!lowered(op_case.op.inputs[i])) continue;
    pair.in_bf16.inputs[i] = Rounded(op_case.inputs[i]);
    pair.in_bf16.op.inputs[i] = pair.in_bf16.inputs[i].type;
    pair.in_f32.inputs[i] = Widened(pair.in_bf16.inputs[i]);
    pair.any = true;
  }
  for (size_t i = 0; i < op_case.op.outputs.size(); ++i) {
    if (IsParameterGradient(op_case, i) || !lowered(op_case.op.outputs[i])) continue;
    pair.in_bf16.op.outputs[i].dtype = DType::kBF16;
    pair.any = true;
  }
  if (!MultipliesMatrices(op_case.op.type)) return pair;
  for (Array& input : pair.in_f32.inputs) input = Widened(Rounded(input));
  if (!pair.in_f32.parameters.empty()) pair.in_f32.parameters[0] = Widened(Rounded(pair.in_f32.parameters[0]));
  return pair;
}

template <typename Check>
void ForPairs(int size, Check check) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    for (const OpCase& op_case : AllCases(seed, size)) {
      const Pair pair = PairOf(op_case, seed);
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << op_case.op.Prefix());
      if (pair.any) check(pair);
    }
  }
}

// What the fp32 kernel gives, rounded where the case asks for it. A NaN's payload is nobody's promise, but none of these is one.
void ExpectRounded(const RunResult& in_f32, const RunResult& got) {
  ASSERT_TRUE(in_f32.status.ok()) << in_f32.status;
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.overrun, "");
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    const bool lowered = got.outputs[i].type.dtype == DType::kBF16;
    EXPECT_EQ((lowered ? Rounded(in_f32.outputs[i]) : in_f32.outputs[i]).bytes, got.outputs[i].bytes) << "output " << i;
  }
}

class WidenedKernelTest : public ::testing::TestWithParam<int> {};  // the size of the cases

TEST_P(WidenedKernelTest, GivesTheBitsOfTheFp32KernelRoundedOnce) {
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), Cpu(2)}) {
    ForPairs(GetParam(), [&](const Pair& pair) {
      const RunResult in_f32 = RunCase(make, pair.in_f32), got = RunCase(make, pair.in_bf16);
      ExpectRounded(in_f32, got);
      for (size_t i = 0; i < got.parameters.size(); ++i) {
        // Running statistics are updated, weights are not rounded in place.
        const bool factor = MultipliesMatrices(pair.in_bf16.op.type) && i == 0;
        EXPECT_EQ((factor ? pair.in_bf16.parameters[0] : in_f32.parameters[i]).bytes, got.parameters[i].bytes) << "parameter " << i;
      }
    });
  }
}

TEST_P(WidenedKernelTest, DoesSoInEvaluationToo) {
  const RunOptions options{.mode = Mode::kEvaluate};
  ForPairs(GetParam(), [&](const Pair& pair) {
    ExpectRounded(RunCase(ref::MakeKernel, pair.in_f32, options), RunCase(ref::MakeKernel, pair.in_bf16, options));
  });
}

// |difference| <= 2^exponent |number| + what the case allows in fp32.
void ExpectWithin(const Array& want, const Array& got, int exponent, double tolerance) {
  double square = 0;
  for (int64_t i = 0; i < want.type.elements(); ++i) square += static_cast<double>(want.f32()[i]) * want.f32()[i];
  const double rms = std::sqrt(square / static_cast<double>(want.type.elements()));
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    const double number = std::abs(static_cast<double>(want.f32()[i]));
    const double allowed = std::ldexp(number, exponent) + testing::kAbsoluteTolerance + 2 * tolerance * std::max(number, rms);
    ASSERT_NEAR(want.f32()[i], got.f32()[i], allowed) << "element " << i;
  }
}

TEST_P(WidenedKernelTest, BothBackEndsAreWithinOneRoundingOfTheReferenceInFp32AndTwoOfEachOther) {
  const KernelMaker cpu = Cpu(2);
  ForPairs(GetParam(), [&](const Pair& pair) {
    const RunResult exact = RunCase(ref::MakeKernel, pair.in_f32), reference = RunCase(ref::MakeKernel, pair.in_bf16);
    const RunResult fast = RunCase(cpu, pair.in_bf16);
    ASSERT_TRUE(exact.status.ok() && reference.status.ok() && fast.status.ok());
    for (size_t i = 0; i < exact.outputs.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "output " << i);
      if (exact.outputs[i].type.dtype != DType::kF32) {
        EXPECT_EQ(reference.outputs[i].bytes, fast.outputs[i].bytes);
        continue;
      }
      const Array of_reference = Widened(reference.outputs[i]), of_cpu = Widened(fast.outputs[i]);
      ExpectWithin(exact.outputs[i], of_reference, -8, pair.in_f32.tolerance);
      ExpectWithin(exact.outputs[i], of_cpu, -8, pair.in_f32.tolerance);
      ExpectWithin(of_reference, of_cpu, -7, pair.in_f32.tolerance);
    }
  });
}

TEST_P(WidenedKernelTest, TheNumberOfThreadsDoesNotChangeABit) {
  const KernelMaker one = Cpu(1), three = Cpu(3);
  ForPairs(GetParam(), [&](const Pair& pair) { testing::ExpectSameBits(RunCase(one, pair.in_bf16), RunCase(three, pair.in_bf16)); });
}

TEST_P(WidenedKernelTest, GradientsOfParametersAddToWhatIsThereInFp32) {
  int checked = 0;
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), Cpu(2)}) {
    ForPairs(GetParam(), [&](const Pair& pair) {
      RunOptions options;
      for (size_t i = 0; i < pair.in_f32.op.outputs.size(); ++i) {
        options.initial.push_back(testing::RandomArray(pair.in_f32.op.outputs[i], 70 + i));
        options.accumulate.push_back(IsParameterGradient(pair.in_f32, i));
        checked += options.accumulate.back();
      }
      RunOptions lowered = options;
      for (size_t i = 0; i < lowered.initial.size(); ++i) {
        if (pair.in_bf16.op.outputs[i].dtype == DType::kBF16) lowered.initial[i] = Rounded(options.initial[i]);
      }
      ExpectRounded(RunCase(make, pair.in_f32, options), RunCase(make, pair.in_bf16, lowered));
    });
  }
  EXPECT_GT(checked, 20);
}

TEST_P(WidenedKernelTest, OutputsNobodyWantsChangeNoOther) {
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), Cpu(2)}) {
    ForPairs(GetParam(), [&](const Pair& pair) {
      const size_t count = pair.in_bf16.op.outputs.size();
      const RunResult want = RunCase(make, pair.in_bf16);
      for (size_t missing = 0; missing < count && count > 1; ++missing) {
        if (missing == 0 && !pair.in_bf16.op.type.ends_with("_grad")) continue;
        RunOptions options;
        options.wanted.assign(count, true);
        options.wanted[missing] = false;
        RunResult got = RunCase(make, pair.in_bf16, options);
        EXPECT_EQ(got.overrun, "");
        got.outputs[missing] = want.outputs[missing];
        testing::ExpectSameBits(want, got);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, WidenedKernelTest, ::testing::Values(1, 3));

OpCase Scale(DType from, DType to) {
  OpCase op_case{.op = {.name = "s", .type = "scale", .attributes = {{"factor", 3.0}}, .inputs = {{from, {4}}}, .outputs = {{to, {4}}}}};
  op_case.inputs.emplace_back(op_case.op.inputs[0]);
  return op_case;
}

TEST(WidenedOpTest, ASumIsNotKeptInBf16) {
  RunOptions options{.accumulate = {true}};
  options.initial.emplace_back(TensorType{DType::kBF16, {4}});
  const RunResult result = RunCase(ref::MakeKernel, Scale(DType::kF32, DType::kBF16), options);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(result.status.message(), HasSubstr("op 's' (scale): sums are kept in f32"));
}

TEST(WidenedOpTest, OtherFloatsAreRefusedByTheOpsName) {
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), Cpu(1)}) {
    const RunResult result = RunCase(make, Scale(DType::kF16, DType::kBF16));
    EXPECT_EQ(result.status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(result.status.message(), HasSubstr("op 's' (scale): computes in f32 only, not on f16[4]"));
  }
}

TEST(WidenedOpTest, ElementsThatAreOnlyMovedAreNotWidened) {
  PreparedOp op{.type = "concat", .inputs = {{DType::kBF16, {4}}, {DType::kBF16, {2}}}, .outputs = {{DType::kBF16, {6}}}};
  EXPECT_FALSE(NeedsWidening(op));
  op.inputs[1].dtype = DType::kF32;
  EXPECT_TRUE(NeedsWidening(op)) << "of two sizes";
  op.type = "add";
  op.inputs[1].dtype = DType::kBF16;
  EXPECT_TRUE(NeedsWidening(op));
  for (TensorType* type : {&op.inputs[0], &op.inputs[1], &op.outputs[0]}) type->dtype = DType::kF32;
  EXPECT_FALSE(NeedsWidening(op));
}

}  // namespace
}  // namespace fusionllm::kernels
