// Gradients of embeddings whose tokens come once, often, and nearly always, against the reference. Without a toolkit and a card the kernels
// are carried out by the processor (emulated/).
#include <functional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/testing/conformance.h"

namespace fusionllm::kernels::cuda {
namespace {

using tensor::DType;
using testing::Array;
using testing::OpCase;
using testing::RunOptions;
using testing::RunResult;
using testing::Target;

constexpr int64_t kVocabulary = 300, kDim = 40;

class CudaEmbeddingTest : public TargetFixture<::testing::TestWithParam<int64_t>> {  // rows
 protected:
  OpCase CaseOf(const std::function<int32_t(int64_t row)>& token) const {
    Array tokens({DType::kI32, tensor::Shape{1, GetParam()}});
    for (int64_t row = 0; row < GetParam(); ++row) tokens.i32()[row] = token(row);
    const Array dy = testing::RandomArray({DType::kF32, tensor::Shape{1, GetParam(), kDim}}, 1);
    return {.op = {.name = "wte.grad",
                   .kind = OpKind::kEmbeddingGrad,
                   .inputs = {tokens.type, dy.type},
                   .outputs = {{DType::kF32, tensor::Shape{kVocabulary, kDim}}}},
            .inputs = {tokens, dy}};
  }

  void ExpectAsTheReference(const OpCase& op_case) const {
    for (const bool add : {false, true}) {
      RunOptions options{.accumulate = {add}, .initial = {testing::RandomArray(op_case.op.outputs[0], 2)}};
      const RunResult want = testing::RunCase(ref::MakeKernel, op_case, options);
      const RunResult got = target_.Run(op_case, options), again = target_.Run(op_case, options);
      ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
      EXPECT_EQ(got.overrun, "");
      EXPECT_EQ(testing::Difference(want.outputs[0], got.outputs[0], 1e-5), "");
      EXPECT_EQ(got.outputs[0].bytes, again.outputs[0].bytes);
    }
  }
};

TEST_P(CudaEmbeddingTest, OneTokenIsEverywhere) {
  ExpectAsTheReference(CaseOf([](int64_t) { return 7; }));
}
TEST_P(CudaEmbeddingTest, TokensComeInTurns) {
  ExpectAsTheReference(CaseOf([](int64_t row) { return static_cast<int32_t>(row % kVocabulary); }));
}
// As in a language: the k-th token some 1/k of the time, the last one among them.
TEST_P(CudaEmbeddingTest, SomeTokensAreFrequent) {
  const base::CounterRng rng(3, "tokens");
  ExpectAsTheReference(CaseOf([&](int64_t row) {
    const auto rank = static_cast<int32_t>(kVocabulary / (1 + rng.Below(static_cast<uint64_t>(row), kVocabulary)));
    return static_cast<int32_t>(kVocabulary) - rank;
  }));
}
// Sorted, tokens begin and end next to the places where pieces do.
TEST_P(CudaEmbeddingTest, TokensEndAroundTheEndsOfPieces) {
  for (const int64_t run : {31, 32, 63, 64, 65, 128, 129}) {
    SCOPED_TRACE(run);
    ExpectAsTheReference(CaseOf([&](int64_t row) { return static_cast<int32_t>((GetParam() - 1 - row) / run % kVocabulary); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, CudaEmbeddingTest, ::testing::Values(1, 63, 64, 65, 128, 1000));

}  // namespace
}  // namespace fusionllm::kernels::cuda
