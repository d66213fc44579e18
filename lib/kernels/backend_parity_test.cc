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
#include "lib/kernels/testing/conformance.h"
#include "lib/kernels/testing/cpu_maker.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::kernels {
namespace {

using testing::AllCases;
using testing::Cpu;
using testing::ExpectSame;
using testing::ExpectSameBits;
using ::testing::HasSubstr;
using testing::KernelMaker;
using testing::OpCase;
using testing::RunCase;
using testing::RunResult;
using testing::Target;

class BackendParityTest : public ::testing::TestWithParam<int> {};  // the size of the cases

TEST_P(BackendParityTest, CpuAgreesWithTheReferenceAndWritesNothingElse) { ExpectAgreement(Target{Cpu(2)}, 25, GetParam()); }
TEST_P(BackendParityTest, CpuAgreesInEvaluation) { ExpectAgreementInEvaluation(Target{Cpu(1)}, GetParam()); }

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
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), Cpu(2)}) ExpectGradientsAdd(Target{make}, GetParam());
}

TEST_P(BackendParityTest, MissingOutputsChangeNoOther) {
  for (const KernelMaker& make : {KernelMaker(ref::MakeKernel), Cpu(2)}) ExpectMissingOutputsChangeNoOther(Target{make}, GetParam());
}

TEST_P(BackendParityTest, RunsInPlaceWhereItSaysSo) {
  EXPECT_GT(ExpectSameInPlace(Target{ref::MakeKernel}, GetParam()) + ExpectSameInPlace(Target{Cpu(2)}, GetParam()), 20);
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
  std::set<OpKind> held = {OpKind::kPlaceholder};  // filled by the runtime
  for (const OpCase& op_case : AllCases(1, 2)) held.insert(op_case.op.kind);
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) EXPECT_TRUE(held.contains(schema->kind)) << schema->name();
}

TEST(CpuBackendTest, HasAKernelForEveryOpOfTheSchemas) {
  const auto backend = CreateBackend("cpu", {.threads = 2});
  ASSERT_TRUE(backend.ok());
  EXPECT_THAT((*backend)->Describe(), HasSubstr("2 threads"));
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) EXPECT_TRUE((*backend)->Supports(schema->kind)) << schema->name();
}

TEST(CpuBackendTest, LargeOpsAgreeWithTheReferenceAndForAnyNumberOfThreads) {
  const KernelMaker one = Cpu(1), three = Cpu(3);
  for (const OpCase& op_case : testing::WithBackward(testing::LargeCases(800), 800)) {
    SCOPED_TRACE(op_case.op.Prefix());
    const RunResult got = RunCase(three, op_case);
    ExpectSame(RunCase(ref::MakeKernel, op_case), got, op_case.tolerance);
    ExpectSameBits(got, RunCase(one, op_case));
  }
}

TEST(CpuBackendTest, NamesTheTokenOrLabelOutOfRange) { testing::ExpectRangesChecked(Target{Cpu(1)}); }

}  // namespace
}  // namespace fusionllm::kernels
