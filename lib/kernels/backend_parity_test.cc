// Every op on every back end against the reference: values, repeatability, threads, accumulation, missing outputs, overruns.
//
// Tolerances are relative to max(|reference|, rms of the tensor): 1e-5, attention and normalization 5e-5, and 1e-6 absolute
// (testing/op_case.h); the reference sums in double.
#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/testing/op_case.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::kernels {
namespace {

using testing::Array;
using testing::Difference;
using ::testing::HasSubstr;
using testing::KernelMaker;
using testing::OpCase;
using testing::RunCase;
using testing::RunOptions;
using testing::RunResult;

KernelMaker Cpu(int threads) {
  return [pool = cpu::WorkerPool::Create(threads).value()](PreparedOp op) { return cpu::MakeKernel(std::move(op), pool); };
}

// The backward cases that forward cases feed, and the forward cases themselves.
std::vector<OpCase> WithBackward(std::vector<OpCase> forward_cases, uint32_t seed) {
  std::vector<OpCase> all;
  for (OpCase& forward : forward_cases) {
    const RunResult result = RunCase(ref::MakeKernel, forward);
    EXPECT_TRUE(result.status.ok()) << result.status;
    const Array dy = testing::RandomArray(result.outputs[0].type, seed + 1000);
    for (const testing::BackwardOp& backward : forward.backward) all.push_back(BackwardCase(forward, backward, result.outputs, dy));
    all.push_back(std::move(forward));
  }
  return all;
}

std::vector<OpCase> AllCases(uint32_t seed, int size) { return WithBackward(testing::RandomCases(seed, size), seed); }

bool IsParameterGradient(const OpCase& op_case, size_t output) {
  const std::string& type = op_case.op.type;
  if (type == "embedding_grad" || type == "linear_grad_weight" || type == "conv2d_grad_weight") return true;
  return (type == "layer_norm_grad" || type == "batch_norm_grad") && output > 0;
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

class BackendParityTest : public ::testing::TestWithParam<int> {};  // the size of the cases

TEST_P(BackendParityTest, CpuAgreesWithTheReferenceAndWritesNothingElse) {
  const KernelMaker make = Cpu(2);
  for (uint32_t seed = 0; seed < 25; ++seed) {
    for (const OpCase& op_case : AllCases(seed, GetParam())) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << op_case.op.Prefix());
      ExpectSame(RunCase(ref::MakeKernel, op_case), RunCase(make, op_case), op_case.tolerance);
    }
  }
}

TEST_P(BackendParityTest, CpuAgreesInEvaluation) {
  const KernelMaker make = Cpu(1);
  for (const OpCase& op_case : AllCases(100, GetParam())) {
    SCOPED_TRACE(op_case.op.Prefix());
    const RunOptions options{.mode = Mode::kEvaluate};
    ExpectSame(RunCase(ref::MakeKernel, op_case, options), RunCase(make, op_case, options), op_case.tolerance);
  }
}

TEST_P(BackendParityTest, TheSameBitsComeInEveryCallAndForAnyNumberOfThreads) {
  const KernelMaker one = Cpu(1), two = Cpu(2), three = Cpu(3);
  for (uint32_t seed = 200; seed < 208; ++seed) {
    for (const OpCase& op_case : AllCases(seed, GetParam())) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << op_case.op.Prefix());
      const RunResult want = RunCase(one, op_case);
      ExpectSameBits(want, RunCase(one, op_case));
      ExpectSameBits(want, RunCase(two, op_case));
      ExpectSameBits(want, RunCase(three, op_case));
    }
  }
}

TEST_P(BackendParityTest, ParameterGradientsAddToWhatIsThere) {
  const KernelMaker cpu = Cpu(2);
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), cpu}) {
    for (uint32_t seed = 300; seed < 304; ++seed) {
      for (const OpCase& op_case : AllCases(seed, GetParam())) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << op_case.op.Prefix());
        RunOptions options;
        RunResult want = RunCase(make, op_case);
        bool any = false;
        for (size_t i = 0; i < op_case.op.outputs.size(); ++i) {
          options.initial.push_back(testing::RandomArray(op_case.op.outputs[i], seed + i));
          options.accumulate.push_back(IsParameterGradient(op_case, i));
          any = any || options.accumulate[i];
          for (int64_t e = 0; options.accumulate[i] && e < want.outputs[i].type.elements(); ++e) {
            want.outputs[i].f32()[e] += options.initial[i].f32()[e];
          }
        }
        if (any) ExpectSame(want, RunCase(make, op_case, options), op_case.tolerance);
      }
    }
  }
}

TEST_P(BackendParityTest, OutputsNobodyWantsChangeNoOther) {
  const KernelMaker cpu = Cpu(2);
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), cpu}) {
    for (const OpCase& op_case : AllCases(400, GetParam())) {
      const size_t count = op_case.op.outputs.size();
      const RunResult want = RunCase(make, op_case);
      for (size_t missing = 0; missing < count && count > 1; ++missing) {
        SCOPED_TRACE(::testing::Message() << op_case.op.Prefix() << "without output " << missing);
        if (missing == 0 && !op_case.op.type.ends_with("_grad")) continue;
        RunOptions options;
        options.wanted.assign(count, true);
        options.wanted[missing] = false;
        RunResult got = RunCase(make, op_case, options);
        ASSERT_TRUE(got.status.ok()) << got.status;
        EXPECT_EQ(got.overrun, "");
        got.outputs[missing] = want.outputs[missing];
        ExpectSameBits(want, got);
      }
    }
  }
}

TEST_P(BackendParityTest, RunsInPlaceWhereItSaysSo) {
  const KernelMaker cpu = Cpu(2);
  int in_place = 0;
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), cpu}) {
    for (const OpCase& op_case : AllCases(500, GetParam())) {
      auto kernel = make(op_case.op);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      if (op_case.inputs.empty() || !(*kernel)->CanRunInPlace(0, 0)) continue;
      SCOPED_TRACE(op_case.op.Prefix());
      ++in_place;
      ExpectSameBits(RunCase(make, op_case), RunKernel(**kernel, op_case, {.in_place = true}));
    }
  }
  EXPECT_GT(in_place, 20);
}

TEST_P(BackendParityTest, TwoKernelsOfOneBackEndRunAtOnce) {
  const KernelMaker make = Cpu(2);
  const std::vector<OpCase> cases = AllCases(600, GetParam());
  std::vector<RunResult> want;
  for (const OpCase& op_case : cases) want.push_back(RunCase(make, op_case));
  std::atomic<int> different{0};
  const auto check = [&] {
    for (size_t i = 0; i < cases.size(); ++i) {
      const RunResult got = RunCase(make, cases[i]);
      for (size_t o = 0; o < got.outputs.size(); ++o) different += got.outputs[o].bytes != want[i].outputs[o].bytes;
    }
  };
  std::thread first(check), second(check);
  first.join();
  second.join();
  EXPECT_EQ(different, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BackendParityTest, ::testing::Values(1, 2, 4));

TEST(OpCasesTest, HoldEveryOpOfTheSchemasForwardAndBackward) {
  std::set<std::string> held = {"placeholder"};  // filled by the runtime
  for (const OpCase& op_case : AllCases(1, 2)) held.insert(op_case.op.type);
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) EXPECT_TRUE(held.contains(schema->type)) << schema->type;
}

TEST(CpuBackendTest, HasAKernelForEveryOpOfTheSchemas) {
  const auto backend = CreateBackend("cpu", {.threads = 2});
  ASSERT_TRUE(backend.ok());
  EXPECT_THAT((*backend)->Describe(), HasSubstr("2 threads"));
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) EXPECT_TRUE((*backend)->Supports(schema->type)) << schema->type;
}

TEST(CpuBackendTest, LargeOpsAgreeWithTheReferenceAndForAnyNumberOfThreads) {
  const KernelMaker one = Cpu(1), three = Cpu(3);
  for (const OpCase& op_case : WithBackward(testing::LargeCases(800), 800)) {
    SCOPED_TRACE(op_case.op.Prefix());
    const RunResult got = RunCase(three, op_case);
    ExpectSame(RunCase(ref::MakeKernel, op_case), got, op_case.tolerance);
    ExpectSameBits(got, RunCase(one, op_case));
  }
}

TEST(CpuBackendTest, NamesTheTokenOrLabelOutOfRange) {
  const KernelMaker make = Cpu(1);
  for (OpCase& op_case : AllCases(700, 2)) {
    const bool tokens = op_case.op.type.starts_with("embedding");
    if (!tokens && !op_case.op.type.starts_with("cross_entropy")) continue;
    for (const int32_t value : {-1, 1 << 20}) {
      op_case.inputs[tokens ? 0 : 1].i32()[0] = value;
      const RunResult result = RunCase(make, op_case);
      EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(result.status.message(),
                  HasSubstr(op_case.op.Prefix() + (tokens ? "token" : "label") + " at position 0 is " + std::to_string(value)));
    }
  }
}

}  // namespace
}  // namespace fusionllm::kernels
