// The bottom of the numerics ladder: reference kernels against finite differences and against values worked out by hand.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/testing/op_case.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::kernels {
namespace {

using tensor::DType;
using testing::Array;
using testing::BackwardCase;
using testing::BackwardOp;
using ::testing::HasSubstr;
using testing::OpCase;
using testing::RunResult;

const testing::KernelMaker kMake = ref::MakeKernel;

double Project(const Array& y, const Array& dy) {
  double sum = 0;
  for (int64_t i = 0; i < y.type.elements(); ++i) sum += static_cast<double>(y.f32()[i]) * dy.f32()[i];
  return sum;
}

Array& Wanted(OpCase& op_case, const std::string& name) {
  return name[0] == 'x' ? op_case.inputs[name[1] - '0'] : op_case.parameters[name[1] - '0'];
}

// Compares a gradient with central differences of <y0, dy> at up to 30 of its elements.
void ExpectMatchesDifferences(const OpCase& forward, const std::string& wanted, const Array& gradient, const Array& dy) {
  constexpr float kStep = 1e-2f;
  const int64_t count = gradient.type.elements();
  const int64_t stride = std::max<int64_t>(1, count / 30);
  for (int64_t i = 0; i < count; i += stride) {
    double value[2];
    for (int side = 0; side < 2; ++side) {
      OpCase moved = forward;
      Wanted(moved, wanted).f32()[i] += side == 0 ? kStep : -kStep;
      value[side] = Project(testing::RunCase(kMake, moved).outputs[0], dy);
    }
    const double expected = (value[0] - value[1]) / (2 * kStep);
    EXPECT_NEAR(gradient.f32()[i], expected, 5e-3 * (1 + std::abs(expected))) << "gradient of " << wanted << ", element " << i;
  }
}

TEST(ReferenceTest, BackwardOpsMatchFiniteDifferences) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    for (const OpCase& forward : testing::RandomCases(seed, 1)) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << forward.op.Prefix());
      const RunResult result = testing::RunCase(kMake, forward);
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(result.overrun, "");
      const Array dy = testing::RandomArray(result.outputs[0].type, seed + 1000);
      for (const BackwardOp& backward : forward.backward) {
        const RunResult gradients = testing::RunCase(kMake, BackwardCase(forward, backward, result.outputs, dy));
        ASSERT_TRUE(gradients.status.ok()) << gradients.status;
        EXPECT_EQ(gradients.overrun, "") << backward.type;
        for (size_t i = 0; i < backward.outputs.size(); ++i) {
          ExpectMatchesDifferences(forward, backward.outputs[i], gradients.outputs[i], dy);
        }
      }
    }
  }
}

OpCase OpCaseOf(absl::string_view type, opdag::Attributes attributes, std::vector<tensor::TensorType> inputs,
                std::vector<tensor::TensorType> outputs) {
  OpCase result{.op = {.name = "it",
                       .kind = opdag::OpKindOf(type),
                       .attributes = std::move(attributes),
                       .inputs = inputs,
                       .outputs = std::move(outputs)}};
  for (const auto& input : inputs) result.inputs.emplace_back(input);
  return result;
}

TEST(ReferenceTest, CrossEntropyCountsHitsAndSkipsIgnoredLabels) {
  OpCase op_case = OpCaseOf("cross_entropy", {{"ignore_index", int64_t{-100}}}, {{DType::kF32, {3, 2}}, {DType::kI32, {3}}},
                            {{DType::kF32, {}}, {DType::kF32, {}}, {DType::kF32, {3}}});
  const float logits[] = {0, std::log(3.f), 2, 0, 5, 5};
  std::copy_n(logits, 6, op_case.inputs[0].f32());
  const int32_t labels[] = {1, 1, -100};
  std::copy_n(labels, 3, op_case.inputs[1].i32());
  const RunResult result = testing::RunCase(kMake, op_case);
  ASSERT_TRUE(result.status.ok());
  EXPECT_NEAR(*result.outputs[0].f32(), 0.5 * (std::log(4 / 3.) + std::log(1 + std::exp(2))), 1e-6);
  EXPECT_EQ(*result.outputs[1].f32(), 1);
  EXPECT_NEAR(result.outputs[2].f32()[2], 5 + std::log(2), 1e-6);
}

TEST(ReferenceTest, BatchNormUpdatesRunningStatisticsWithTheUnbiasedVarianceInTrainingOnly) {
  for (OpCase& op_case : testing::RandomCases(7, 1)) {
    if (op_case.op.kind != OpKind::kBatchNorm) continue;
    const int64_t channels = op_case.op.in(0).dim(-1);
    const int64_t rows = op_case.op.in(0).rows();
    double mean = 0, square = 0;
    for (int64_t r = 0; r < rows; ++r) mean += op_case.inputs[0].f32()[r * channels] / static_cast<double>(rows);
    for (int64_t r = 0; r < rows; ++r) square += std::pow(op_case.inputs[0].f32()[r * channels] - mean, 2);
    const RunResult train = testing::RunCase(kMake, op_case);
    EXPECT_NEAR(train.parameters[2].f32()[0], 0.9 * op_case.parameters[2].f32()[0] + 0.1 * mean, 1e-5);
    EXPECT_NEAR(train.parameters[3].f32()[0], 0.9 * op_case.parameters[3].f32()[0] + 0.1 * square / static_cast<double>(rows - 1), 1e-5);
    EXPECT_EQ(*reinterpret_cast<const int64_t*>(train.parameters[4].bytes.data()), 1);
    for (const Mode mode : {Mode::kRecompute, Mode::kEvaluate}) {
      const RunResult other = testing::RunCase(kMake, op_case, {.mode = mode});
      EXPECT_EQ(other.parameters[2].bytes, op_case.parameters[2].bytes);
      EXPECT_EQ(other.outputs[0].bytes == train.outputs[0].bytes, mode == Mode::kRecompute);
    }
  }
}

TEST(ReferenceTest, DropoutDependsOnTheGlobalSampleAndNotOnTheMicroBatch) {
  const opdag::Attributes attributes = {{"rate", 0.5}, {"name", std::string("d")}};
  const tensor::TensorType four = {DType::kF32, {4, 50}}, two = {DType::kF32, {2, 50}};
  OpCase whole = OpCaseOf("dropout", attributes, {four}, {four});
  OpCase part = OpCaseOf("dropout", attributes, {two}, {two});
  std::fill_n(whole.inputs[0].f32(), 200, 1.f);
  std::fill_n(part.inputs[0].f32(), 100, 1.f);
  const RunResult all = testing::RunCase(kMake, whole, {.random = {.seed = 3, .step = 5, .first_sample = 0}});
  const RunResult second = testing::RunCase(kMake, part, {.random = {.seed = 3, .step = 5, .first_sample = 2}});
  EXPECT_TRUE(std::equal(second.outputs[0].f32(), second.outputs[0].f32() + 100, all.outputs[0].f32() + 100));
  int kept = 0;
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(all.outputs[0].f32()[i] == 0 || all.outputs[0].f32()[i] == 2);
    kept += all.outputs[0].f32()[i] != 0;
  }
  EXPECT_GT(kept, 70);
  EXPECT_LT(kept, 130);
  const RunResult next = testing::RunCase(kMake, whole, {.random = {.seed = 3, .step = 6}});
  EXPECT_NE(next.outputs[0].bytes, all.outputs[0].bytes);
  const RunResult evaluated = testing::RunCase(kMake, whole, {.mode = Mode::kEvaluate});
  EXPECT_EQ(evaluated.outputs[0].bytes, whole.inputs[0].bytes);
}

// The list of schemas and the list of kernels are written in different libraries.
TEST(ReferenceTest, HasAKernelForEveryOpOfTheSchemas) {
  const auto backend = CreateBackend("ref", {});
  ASSERT_TRUE(backend.ok());
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) EXPECT_TRUE((*backend)->Supports(schema->kind)) << schema->name();
}

TEST(ReferenceTest, PreparesAndRunsAnOpOfAGraph) {
  opdag::Graph graph("g");
  const opdag::Attributes shape = {
      {"role", std::string("x")}, {"dtype", std::string("f32")}, {"shape", std::vector<int64_t>{opdag::kBatch, 3}}};
  ASSERT_TRUE(graph.AddOp({.name = "x", .kind = OpKind::kPlaceholder, .attributes = shape}).ok());
  const auto twice = graph.AddOp({.name = "twice", .kind = OpKind::kScale, .attributes = {{"factor", 2.0}}, .inputs = {0}});
  ASSERT_TRUE(twice.ok()) << twice.status();
  ASSERT_TRUE(opdag::InferTypes(graph, 2).ok());
  const auto backend = CreateBackend("ref", {});
  auto kernel = (*backend)->Prepare(graph, graph.op(*twice));
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const OpCase op_case = [] {
    OpCase made = OpCaseOf("scale", {}, {{DType::kF32, {2, 3}}}, {{DType::kF32, {2, 3}}});
    std::fill_n(made.inputs[0].f32(), 6, 1.5f);
    return made;
  }();
  const RunResult result = testing::RunKernel(**kernel, op_case, {.in_place = (*kernel)->CanRunInPlace(0, 0)});
  EXPECT_EQ(result.outputs[0].f32()[5], 3.f);
}

TEST(ReferenceTest, NamesTheTokenOutsideTheVocabulary) {
  for (const int32_t token : {-1, 7, 1 << 30}) {
    OpCase op_case = OpCaseOf("embedding", {}, {{DType::kI32, {1, 3}}}, {{DType::kF32, {1, 3, 2}}});
    op_case.op.parameters = {{DType::kF32, {7, 2}}};
    op_case.parameters.emplace_back(op_case.op.parameters[0]);
    op_case.inputs[0].i32()[2] = token;
    const RunResult result = testing::RunCase(kMake, op_case);
    EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status.message(), HasSubstr("op 'it' (embedding): token at position 2 is " + std::to_string(token)));
  }
}

TEST(ReferenceTest, NamesTheBackEndsThereAre) {
  const auto backend = CreateBackend("tpu", {});
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(backend.status().message(), HasSubstr("ref"));
  EXPECT_EQ(CreateBackend("ref", {.threads = 0}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fusionllm::kernels
