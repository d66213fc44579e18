#include "lib/opdag/graph.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::opdag {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Op MakeOp(std::string name, std::string type, std::vector<ValueId> inputs, Attributes attributes = {}) {
  Op op;
  op.name = std::move(name);
  op.kind = OpKindOf(type);
  op.inputs = std::move(inputs);
  op.attributes = std::move(attributes);
  return op;
}

Op Input(std::string name, std::vector<int64_t> shape) {
  return MakeOp(std::move(name), "placeholder", {},
                {{"role", std::string("images")}, {"dtype", std::string("f32")}, {"shape", std::move(shape)}});
}

std::string BuildErrorOf(const absl::StatusOr<OpId>& result) { return result.ok() ? "ok" : std::string(result.status().message()); }

TEST(GraphTest, ValuesKnowTheirProducerAndEveryRead) {
  Graph graph;
  ASSERT_TRUE(graph.AddOp(Input("x", {kBatch, 4})).ok());
  ASSERT_TRUE(graph.AddOp(MakeOp("twice", "add", {0, 0})).ok());
  EXPECT_THAT(graph.value(0).consumers, ElementsAre(1, 1));
  EXPECT_EQ(graph.value(1).producer, 1);
  EXPECT_TRUE(Verify(graph).ok());
}

TEST(GraphTest, NamesFurtherOutputsAfterTheSchema) {
  Graph graph;
  ASSERT_TRUE(graph.AddOp(Input("x", {kBatch, 6})).ok());
  ASSERT_TRUE(graph.AddOp(MakeOp("parts", "split", {0}, {{"axis", int64_t{1}}, {"sizes", std::vector<int64_t>{2, 4}}})).ok());
  EXPECT_EQ(graph.value(1).name, "parts");
  EXPECT_EQ(graph.value(2).name, "parts:y1");
}

TEST(GraphTest, RefusesWhatTheSchemaForbidsAndNamesTheOp) {
  Graph graph;
  ASSERT_TRUE(graph.AddOp(Input("x", {kBatch, 4})).ok());
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("y", "frobnicate", {0}))), HasSubstr("op 'y' (): it has no op type"));
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("x", "relu", {0}))), HasSubstr("another op has the same name"));
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("y", "add", {0}))), HasSubstr("has 1 inputs and takes 2 (a, b)"));
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("y", "relu", {7}))), HasSubstr("input 7 is not a value"));
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("y", "relu", {0}, {{"alpha", 1.0}}))), HasSubstr("has no attribute 'alpha'"));
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("y", "scale", {0}, {{"factor", true}}))), HasSubstr("'factor' must be a number"));
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("y", "dropout", {0}))), HasSubstr("needs the attribute 'rate'"));
  EXPECT_THAT(BuildErrorOf(graph.AddOp(MakeOp("y", "linear", {0}, {{"out", int64_t{3}}}))), HasSubstr("has 0 parameters and needs 2"));
  EXPECT_EQ(graph.ops().size(), 1u);
}

TEST(GraphBuilderTest, AnUnknownOpTypeIsNamedWithItsOp) {
  GraphBuilder builder("g");
  builder.Add("y", "frobnicate", {});
  const absl::StatusOr<Graph> graph = builder.Finish(0);
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.status().message(), HasSubstr("op 'y' (frobnicate): no op type has this name"));
}

TEST(GraphTest, ASharedParameterMustKeepItsType) {
  Graph graph;
  EXPECT_EQ(*graph.AddParameter({"w", {tensor::DType::kF32, {2, 3}}, {}, true}), 0);
  EXPECT_EQ(*graph.AddParameter({"w", {tensor::DType::kF32, {2, 3}}, {}, true}), 0);
  const auto refused = graph.AddParameter({"w", {tensor::DType::kF32, {3, 2}}, {}, true});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("parameter 'w' is f32[2, 3]"));
}

TEST(GraphTest, InferTypesFixesTheBatchAndCanBeRepeated) {
  GraphBuilder builder("g");
  const ValueId x = builder.Placeholder("x", "images", "f32", {kBatch, 4});
  const ValueId y = builder.Add("fc", "linear", {x}, {{"out", int64_t{3}}});
  Graph graph = *builder.Finish(kNone);
  EXPECT_EQ(graph.batch(), 0);
  ASSERT_TRUE(InferTypes(graph, 5).ok());
  EXPECT_EQ(graph.value(y).type.ToString(), "f32[5, 3]");
  ASSERT_TRUE(InferTypes(graph, 2).ok());
  EXPECT_EQ(graph.value(y).type.ToString(), "f32[2, 3]");
  EXPECT_FALSE(InferTypes(graph, 0).ok());
}

TEST(GraphTest, AParameterOfTheWrongShapeIsNamedWithBothShapes) {
  Graph graph;
  ASSERT_TRUE(graph.AddOp(Input("x", {kBatch, 4})).ok());
  ASSERT_TRUE(graph.AddParameter({"w", {tensor::DType::kF32, {5, 3}}, {}, true}).ok());
  Op op = MakeOp("fc", "linear", {0}, {{"out", int64_t{3}}, {"bias", false}});
  op.parameters = {0};
  ASSERT_TRUE(graph.AddOp(std::move(op)).ok());
  const absl::Status status = InferTypes(graph, 2);
  EXPECT_THAT(std::string(status.message()), HasSubstr("op 'fc' (linear): its weight 'w' is f32[5, 3] and must be f32[4, 3]"));
}

TEST(GraphTest, AbsurdExtentsAreRefusedWithoutAllocating) {
  Graph graph;
  ASSERT_TRUE(graph.AddOp(Input("x", {kBatch, int64_t{1} << 31})).ok());
  EXPECT_THAT(std::string(InferTypes(graph, 1).message()), HasSubstr("op 'x' (placeholder)"));
  Graph wide;
  ASSERT_TRUE(wide.AddOp(Input("x", {1 << 30, 1 << 30, 1 << 30})).ok());
  EXPECT_THAT(std::string(InferTypes(wide, 1).message()), HasSubstr("elements"));
}

TEST(VerifyTest, FindsWhatABrokenPassLeavesBehind) {
  Graph good;
  ASSERT_TRUE(good.AddOp(Input("x", {kBatch, 4})).ok());
  ASSERT_TRUE(good.AddOp(MakeOp("y", "relu", {0})).ok());
  ASSERT_TRUE(good.AddOp(MakeOp("z", "relu", {1})).ok());
  ASSERT_TRUE(Verify(good).ok());

  Graph later = good;
  later.mutable_op(1).inputs = {2};
  EXPECT_THAT(std::string(Verify(later).message()), HasSubstr("reads 'z' before it is produced"));
  Graph consumers = good;
  consumers.mutable_value(0).consumers.clear();
  EXPECT_THAT(std::string(Verify(consumers).message()), HasSubstr("value 'x': its consumers"));
  Graph producer = good;
  producer.mutable_value(1).producer = 0;
  EXPECT_FALSE(Verify(producer).ok());
  Graph names = good;
  names.mutable_op(2).name = "y";
  EXPECT_THAT(std::string(Verify(names).message()), HasSubstr("two ops are named 'y'"));
  Graph range = good;
  range.mutable_op(1).inputs = {9};
  EXPECT_FALSE(Verify(range).ok());
  Graph loss = good;
  loss.set_loss(1);
  ASSERT_TRUE(InferTypes(loss, 2).ok());
  EXPECT_THAT(std::string(Verify(loss).message()), HasSubstr("must be a scalar"));
}

TEST(AttributesTest, PrintInOrderOfNamesAndTellNumbersFromIntegers) {
  const Attributes attributes = {{"shape", std::vector<int64_t>{kBatch, 3}},
                                 {"axes", std::vector<int64_t>{-2}},
                                 {"rate", 1.0},
                                 {"heads", int64_t{6}},
                                 {"causal", true},
                                 {"role", std::string("a\"b")}};
  EXPECT_EQ(ToString(attributes), "axes=[-2], causal=true, heads=6, rate=1.0, role=\"a\\\"b\", shape=[b, 3]");
}

}  // namespace
}  // namespace fusionllm::opdag
