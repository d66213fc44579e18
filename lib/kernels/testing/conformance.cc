#include "lib/kernels/testing/conformance.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::testing {

using ::testing::HasSubstr;

// The backward cases that forward cases feed, and the forward cases themselves.
std::vector<OpCase> WithBackward(std::vector<OpCase> forward_cases, uint32_t seed) {
  std::vector<OpCase> all;
  for (OpCase& forward : forward_cases) {
    const RunResult result = RunCase(ref::MakeKernel, forward);
    EXPECT_TRUE(result.status.ok()) << result.status;
    const Array dy = RandomArray(result.outputs[0].type, seed + 1000);
    for (const BackwardOp& backward : forward.backward) all.push_back(BackwardCase(forward, backward, result.outputs, dy));
    all.push_back(std::move(forward));
  }
  return all;
}

std::vector<OpCase> AllCases(uint32_t seed, int size) { return WithBackward(RandomCases(seed, size), seed); }

bool IsParameterGradient(const OpCase& op_case, size_t output) {
  const OpKind kind = op_case.op.kind;
  if (kind == OpKind::kEmbeddingGrad || kind == OpKind::kLinearGradWeight || kind == OpKind::kConv2dGradWeight) return true;
  return (kind == OpKind::kLayerNormGrad || kind == OpKind::kBatchNormGrad) && output > 0;
}

void ExpectSame(const RunResult& want, const RunResult& got, double tolerance) {
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.overrun, "");
  for (size_t i = 0; i < want.outputs.size(); ++i) EXPECT_EQ(Difference(want.outputs[i], got.outputs[i], tolerance), "") << "output " << i;
  for (size_t i = 0; i < want.parameters.size(); ++i) {
    EXPECT_EQ(Difference(want.parameters[i], got.parameters[i], tolerance), "") << "parameter " << i;
  }
}

void ExpectSameBits(const RunResult& want, const RunResult& got) {
  ASSERT_TRUE(got.status.ok()) << got.status;
  for (size_t i = 0; i < want.outputs.size(); ++i) EXPECT_EQ(want.outputs[i].bytes, got.outputs[i].bytes) << "output " << i;
}

void ExpectAgreement(const Target& target, uint32_t seeds, int size) {
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    for (const OpCase& op_case : AllCases(seed, size)) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << op_case.op.Prefix());
      ExpectSame(RunCase(ref::MakeKernel, op_case), target.Run(op_case), op_case.tolerance);
    }
  }
}

void ExpectAgreementInEvaluation(const Target& target, int size) {
  for (const OpCase& op_case : AllCases(100, size)) {
    SCOPED_TRACE(op_case.op.Prefix());
    const RunOptions options{.mode = Mode::kEvaluate};
    ExpectSame(RunCase(ref::MakeKernel, op_case, options), target.Run(op_case, options), op_case.tolerance);
  }
}

void ExpectGradientsAdd(const Target& target, int size) {
  for (uint32_t seed = 300; seed < 304; ++seed) {
    for (const OpCase& op_case : AllCases(seed, size)) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << op_case.op.Prefix());
      RunOptions options;
      RunResult want = target.Run(op_case);
      bool any = false;
      for (size_t i = 0; i < op_case.op.outputs.size(); ++i) {
        options.initial.push_back(RandomArray(op_case.op.outputs[i], seed + i));
        options.accumulate.push_back(IsParameterGradient(op_case, i));
        any = any || options.accumulate[i];
        for (int64_t e = 0; options.accumulate[i] && e < want.outputs[i].type.elements(); ++e) {
          want.outputs[i].f32()[e] += options.initial[i].f32()[e];
        }
      }
      if (any) ExpectSame(want, target.Run(op_case, options), op_case.tolerance);
    }
  }
}

void ExpectMissingOutputsChangeNoOther(const Target& target, const OpCase& op_case) {
  const size_t count = op_case.op.outputs.size();
  const RunResult want = target.Run(op_case);
  for (size_t missing = 0; missing < count && count > 1; ++missing) {
    SCOPED_TRACE(::testing::Message() << op_case.op.Prefix() << "without output " << missing);
    if (missing == 0 && !absl::EndsWith(opdag::Name(op_case.op.kind), "_grad")) continue;
    RunOptions options;
    options.wanted.assign(count, true);
    options.wanted[missing] = false;
    RunResult got = target.Run(op_case, options);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.overrun, "");
    got.outputs[missing] = want.outputs[missing];
    ExpectSameBits(want, got);
  }
}

void ExpectMissingOutputsChangeNoOther(const Target& target, int size) {
  for (const OpCase& op_case : AllCases(400, size)) ExpectMissingOutputsChangeNoOther(target, op_case);
}

bool ExpectSameInPlace(const Target& target, const OpCase& op_case) {
  auto kernel = target.make(op_case.op);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok() || op_case.inputs.empty() || !(*kernel)->CanRunInPlace(0, 0)) return false;
  SCOPED_TRACE(op_case.op.Prefix());
  ExpectSameBits(target.Run(op_case), RunKernel(**kernel, op_case, {.in_place = true, .memory = target.memory}));
  return true;
}

int ExpectSameInPlace(const Target& target, int size) {
  int in_place = 0;
  for (const OpCase& op_case : AllCases(500, size)) in_place += ExpectSameInPlace(target, op_case) ? 1 : 0;
  return in_place;
}

void ExpectRangesChecked(const Target& target) {
  for (OpCase& op_case : AllCases(700, 2)) {
    const bool tokens = op_case.op.kind == OpKind::kEmbedding || op_case.op.kind == OpKind::kEmbeddingGrad;
    if (!tokens && op_case.op.kind != OpKind::kCrossEntropy && op_case.op.kind != OpKind::kCrossEntropyGrad) continue;
    for (const int32_t value : {-1, 1 << 20}) {
      op_case.inputs[tokens ? 0 : 1].i32()[0] = value;
      const RunResult result = target.Run(op_case);
      EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(result.status.message(),
                  HasSubstr(op_case.op.Prefix() + (tokens ? "token" : "label") + " at position 0 is " + std::to_string(value)));
    }
  }
}

void ExpectLargeOpsAgree(const Target& target) {
  for (const OpCase& op_case : WithBackward(LargeCases(800), 800)) {
    SCOPED_TRACE(op_case.op.Prefix());
    ExpectSame(RunCase(ref::MakeKernel, op_case), target.Run(op_case), op_case.tolerance);
  }
}

}  // namespace fusionllm::kernels::testing
