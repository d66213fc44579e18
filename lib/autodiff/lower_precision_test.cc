#include "lib/autodiff/lower_precision.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/mlp/graph.h"
#include "lib/models/resnet/graph.h"
#include "lib/opdag/graph_builder.h"
#include "lib/opdag/testing/random_graph.h"

namespace fusionllm::autodiff {
namespace {

using opdag::kNone;
using opdag::ValueId;
using tensor::DType;
using ::testing::HasSubstr;

TrainingGraph Differentiated(absl::StatusOr<opdag::Graph> graph) {
  EXPECT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(opdag::InferTypes(*graph, 2).ok());
  absl::StatusOr<TrainingGraph> training = Differentiate(*graph);
  EXPECT_TRUE(training.ok()) << training.status();
  return *std::move(training);
}

TrainingGraph Gpt2() {
  return Differentiated(models::BuildGpt2({.layers = 2, .heads = 2, .embd = 8, .vocab = 11, .positions = 6, .sequence = 4}));
}

DType TypeOf(const TrainingGraph& training, absl::string_view op, int output = 0) {
  return training.graph.value(training.graph.op(training.graph.FindOp(op)).outputs[output]).type.dtype;
}

// By the rule's words, independent of the pass: what is bf16 and what is not.
void ExpectLowered(const TrainingGraph& before, const TrainingGraph& after) {
  ASSERT_TRUE(CheckPrecision(after).ok()) << CheckPrecision(after);
  ASSERT_EQ(before.graph.values().size(), after.graph.values().size());
  int lowered = 0;
  for (ValueId id = 0; id < static_cast<ValueId>(after.graph.values().size()); ++id) {
    const opdag::Value& value = after.graph.value(id);
    SCOPED_TRACE(value.name);
    EXPECT_EQ(value.type.shape, before.graph.value(id).type.shape);
    const opdag::Op& producer = after.graph.op(value.producer);
    if (value.type.dtype != DType::kBF16) {
      EXPECT_EQ(value.type.dtype, before.graph.value(id).type.dtype);
      continue;
    }
    ++lowered;
    EXPECT_EQ(before.graph.value(id).type.dtype, DType::kF32);
    EXPECT_GT(value.type.shape.rank(), 0);
    EXPECT_NE(producer.kind, opdag::OpKind::kPlaceholder);
    if (value.producer < after.forward_ops) {
      EXPECT_LT(value.consumers.front(), after.forward_ops) << "only backward ops read it";
    } else {
      ASSERT_NE(after.differentiates[id], kNone) << "neither an activation nor a gradient of one";
      EXPECT_EQ(after.graph.value(after.differentiates[id]).type.dtype, DType::kBF16);
    }
  }
  EXPECT_GT(lowered, 0);
  for (const ParameterUse& use : after.uses) EXPECT_EQ(after.graph.value(use.gradient).type.dtype, DType::kF32);
  for (const opdag::Parameter& parameter : after.graph.parameters()) EXPECT_NE(parameter.type.dtype, DType::kBF16) << parameter.name;
  EXPECT_EQ(after.graph.value(after.graph.loss()).type.dtype, DType::kF32);
  EXPECT_EQ(after.graph.value(after.loss_gradient).type.dtype, DType::kF32);
}

TEST(LowerPrecisionTest, ActivationsAndTheirGradientsOfEveryModelBecomeBf16) {
  for (const TrainingGraph& before : {Gpt2(), Differentiated(models::BuildMlp({})),
                                      Differentiated(models::BuildResNet({.depth = 18, .stem = "cifar", .image_size = 32}))}) {
    TrainingGraph after = before;
    ASSERT_TRUE(LowerPrecision(after).ok());
    ExpectLowered(before, after);
  }
}

TEST(LowerPrecisionTest, RandomGraphsAreLoweredByTheSameRule) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const TrainingGraph before = Differentiated(opdag::testing::RandomGraph({.seed = seed, .layers = seed % 2 == 0}));
    TrainingGraph after = before;
    const absl::Status status = LowerPrecision(after);
    ASSERT_TRUE(status.ok()) << status;
    ExpectLowered(before, after);
  }
}

TEST(LowerPrecisionTest, OfGpt2TheStatisticsTheLossAndParametersStay) {
  TrainingGraph training = Gpt2();
  ASSERT_TRUE(LowerPrecision(training).ok());
  for (const opdag::Op& op : training.graph.ops()) {
    if (op.forward_op != kNone || op.kind == opdag::OpKind::kPlaceholder) continue;
    SCOPED_TRACE(op.name);
    const bool loss = op.kind == opdag::OpKind::kCrossEntropy;
    EXPECT_EQ(TypeOf(training, op.name), loss ? DType::kF32 : DType::kBF16);
    for (int i = 1; i < static_cast<int>(op.outputs.size()); ++i) EXPECT_EQ(TypeOf(training, op.name, i), DType::kF32) << i;
  }
}

TEST(LowerPrecisionTest, DataConstantsAndWhatComesOfALossStay) {
  opdag::GraphBuilder builder("losses", 2);
  const ValueId x = builder.Placeholder("x", "images", "f32", {opdag::kBatch, 4});
  const ValueId half = builder.Add("half", "constant", {}, {{"value", 0.5}, {"shape", std::vector<int64_t>{4}}});
  const ValueId scaled = builder.Add("scaled", "mul", {x, half});
  const ValueId y = builder.Add("y", "linear", {scaled}, {{"out", int64_t{4}}, {"layout", std::string("oi")}, {"bias", true}});
  const ValueId error = builder.Add("error", "mse", {y, x});
  const ValueId spread = builder.Add("spread", "broadcast_to", {error}, {{"shape", std::vector<int64_t>{3}}});
  const ValueId mean =
      builder.Add("mean", "reduce", {spread}, {{"kind", std::string("mean")}, {"axes", std::vector<int64_t>{0}}, {"keep_dims", false}});
  TrainingGraph training = Differentiated(builder.Finish(mean));
  ASSERT_TRUE(LowerPrecision(training).ok());
  for (const char* op : {"x", "half", "error", "spread", "mean"}) EXPECT_EQ(TypeOf(training, op), DType::kF32) << op;
  for (const char* op : {"scaled", "y"}) EXPECT_EQ(TypeOf(training, op), DType::kBF16) << op;
}

TEST(LowerPrecisionTest, AStatisticStaysEvenWhereAForwardOpReadsIt) {
  opdag::GraphBuilder builder("statistics", 2);
  const ValueId x = builder.Placeholder("x", "images", "f32", {opdag::kBatch, 4});
  const ValueId y = builder.Add("y", "linear", {x}, {{"out", int64_t{4}}, {"layout", std::string("oi")}, {"bias", true}});
  const ValueId norm = builder.Add("norm", "layer_norm", {y});
  builder.Add("reader", "neg", {builder.Output(norm, 1)});
  TrainingGraph training = Differentiated(builder.Finish(builder.Add("loss", "mse", {norm, x})));
  ASSERT_TRUE(LowerPrecision(training).ok());
  EXPECT_EQ(TypeOf(training, "norm", 0), DType::kBF16);
  EXPECT_EQ(TypeOf(training, "norm", 1), DType::kF32);
}

TEST(LowerPrecisionTest, EveryPartOfASplitIsAnActivation) {
  opdag::GraphBuilder builder("parts", 2);
  const ValueId x = builder.Placeholder("x", "images", "f32", {opdag::kBatch, 4});
  const ValueId y = builder.Add("y", "linear", {x}, {{"out", int64_t{4}}, {"layout", std::string("oi")}, {"bias", true}});
  const ValueId target = builder.Placeholder("target", "images", "f32", {opdag::kBatch, 2});
  const ValueId a = builder.Add("parts", "split", {y}, {{"axis", int64_t{1}}, {"sizes", std::vector<int64_t>{2, 2}}});
  const ValueId sum = builder.Add("sum", "add", {a, builder.Output(a, 1)});
  TrainingGraph training = Differentiated(builder.Finish(builder.Add("loss", "mse", {sum, target})));
  ASSERT_TRUE(LowerPrecision(training).ok());
  EXPECT_EQ(TypeOf(training, "parts", 0), DType::kBF16);
  EXPECT_EQ(TypeOf(training, "parts", 1), DType::kBF16);
}

TEST(LowerPrecisionTest, TypesThatDoNotGoTogetherAreRefusedByTheValue) {
  const auto refused = [](auto&& spoil) {
    TrainingGraph training = Gpt2();
    EXPECT_TRUE(LowerPrecision(training).ok());
    spoil(training);
    const absl::Status status = CheckPrecision(training);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](TrainingGraph& t) { t.graph.mutable_value(t.uses[0].gradient).type.dtype = DType::kBF16; }),
              HasSubstr("as the gradient of parameter"));
  EXPECT_THAT(refused([](TrainingGraph& t) { t.graph.mutable_value(t.graph.loss()).type.dtype = DType::kBF16; }), HasSubstr("the loss"));
  EXPECT_THAT(refused([](TrainingGraph& t) {
                const auto activation = t.graph.op(t.graph.value(t.graph.loss()).producer).inputs[0];
                t.graph.mutable_value(activation).type.dtype = DType::kF32;
              }),
              HasSubstr("as a gradient of"));
  EXPECT_THAT(refused([](TrainingGraph& t) { t.graph.mutable_value(0).type.dtype = DType::kBF16; }), HasSubstr("data stay"));
  EXPECT_THAT(refused([](TrainingGraph& t) { t.graph.mutable_value(3).type.dtype = DType::kF16; }), HasSubstr("f32 or bf16"));
}

}  // namespace
}  // namespace fusionllm::autodiff
