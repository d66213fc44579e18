#include "lib/opdag/op_schema.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::opdag {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

// The output types of one op on placeholders of these types, or the reason why not.
std::string Infer(const std::string& type, const std::vector<std::pair<std::string, Ints>>& inputs, Attributes attributes = {}) {
  GraphBuilder builder("g");
  std::vector<ValueId> values;
  for (size_t i = 0; i < inputs.size(); ++i)
    values.push_back(builder.Placeholder(std::string(1, 'p' + i), "x", inputs[i].first, inputs[i].second));
  builder.Add("op", type, values, std::move(attributes));
  if (!builder.status().ok()) return std::string(builder.status().message());
  std::string text;
  for (const ValueId output : builder.graph().ops().back().outputs) text += builder.graph().value(output).type.ToString() + " ";
  text.pop_back();
  return text;
}

std::string InferF32(const std::string& type, const std::vector<Ints>& shapes, Attributes attributes = {}) {
  std::vector<std::pair<std::string, Ints>> inputs;
  for (const Ints& shape : shapes) inputs.emplace_back("f32", shape);
  return Infer(type, inputs, std::move(attributes));
}

TEST(ShapeRuleTest, Movement) {
  EXPECT_EQ(InferF32("reshape", {{2, 6}}, {{"shape", Ints{3, -1}}}), "f32[3, 4]");
  EXPECT_EQ(InferF32("reshape", {{1}}, {{"shape", Ints{}}}), "f32[]");
  EXPECT_THAT(InferF32("reshape", {{2, 6}}, {{"shape", Ints{5, -1}}}), HasSubstr("cannot take the shape [5, -1]"));
  EXPECT_THAT(InferF32("reshape", {{2, 6}}, {{"shape", Ints{-1, -1}}}), HasSubstr("more than one -1"));
  EXPECT_EQ(InferF32("flatten", {{2, 3, 4}}), "f32[2, 12]");
  EXPECT_EQ(InferF32("transpose", {{2, 3, 4}}, {{"permutation", Ints{2, 0, 1}}}), "f32[4, 2, 3]");
  EXPECT_THAT(InferF32("transpose", {{2, 3}}, {{"permutation", Ints{0, 0}}}), HasSubstr("no permutation"));
  EXPECT_EQ(InferF32("concat", {{2, 3}, {2, 4}}, {{"axis", int64_t{1}}}), "f32[2, 7]");
  EXPECT_THAT(InferF32("concat", {{2, 3}, {3, 4}}, {{"axis", int64_t{1}}}), HasSubstr("differ beside axis 1"));
  EXPECT_EQ(InferF32("split", {{2, 5}}, {{"axis", int64_t{1}}, {"sizes", Ints{2, 3}}}), "f32[2, 2] f32[2, 3]");
  EXPECT_THAT(InferF32("split", {{2, 5}}, {{"axis", int64_t{1}}, {"sizes", Ints{2, 2}}}), HasSubstr("leaves 1"));
  EXPECT_THAT(InferF32("split", {{2, 5}}, {{"axis", int64_t{1}}, {"sizes", Ints{}}}), HasSubstr("0 outputs"));
  EXPECT_EQ(InferF32("slice", {{2, 5}}, {{"axis", int64_t{1}}, {"begin", int64_t{1}}, {"end", int64_t{4}}}), "f32[2, 3]");
  EXPECT_THAT(InferF32("slice", {{2, 5}}, {{"axis", int64_t{1}}, {"begin", int64_t{4}}, {"end", int64_t{4}}}), HasSubstr("[4, 4)"));
  EXPECT_EQ(InferF32("broadcast_to", {{3, 1}}, {{"shape", Ints{2, 3, 4}}}), "f32[2, 3, 4]");
  EXPECT_THAT(InferF32("broadcast_to", {{3}}, {{"shape", Ints{3, 1}}}), HasSubstr("does not broadcast"));
  EXPECT_EQ(InferF32("constant", {}, {{"value", 1.5}, {"shape", Ints{2}}}), "f32[2]");
}

TEST(ShapeRuleTest, Elementwise) {
  EXPECT_EQ(InferF32("add", {{2, 1, 4}, {3, 1}}), "f32[2, 3, 4]");
  EXPECT_THAT(InferF32("mul", {{2, 3}, {2}}), HasSubstr("[2, 3] and [2] do not broadcast: a is p, b is q"));
  EXPECT_THAT(InferF32("gelu", {{2}}, {{"approximate", std::string("exact")}}), HasSubstr("\"exact\""));
  EXPECT_THAT(InferF32("dropout", {{2}}, {{"rate", 1.0}}), HasSubstr("below 1"));
  EXPECT_THAT(Infer("relu", {{"i32", {2}}}), HasSubstr("must be f32"));
}

TEST(ShapeRuleTest, MatricesAndAttention) {
  EXPECT_EQ(InferF32("linear", {{2, 3, 4}}, {{"out", int64_t{5}}}), "f32[2, 3, 5]");
  EXPECT_THAT(InferF32("linear", {{2, 4}}, {{"out", int64_t{0}}}), HasSubstr("'out' is 0"));
  EXPECT_THAT(InferF32("linear", {{2, 4}}, {{"out", int64_t{1}}, {"layout", std::string("xy")}}), HasSubstr("\"xy\""));
  EXPECT_EQ(InferF32("matmul", {{7, 2, 3}, {7, 4, 3}}, {{"transpose_b", true}}), "f32[7, 2, 4]");
  EXPECT_EQ(InferF32("matmul", {{7, 3, 2}, {3, 4}}, {{"transpose_a", true}}), "f32[7, 2, 4]");
  EXPECT_THAT(InferF32("matmul", {{7, 2, 3}, {6, 3, 4}}), HasSubstr("do not multiply"));
  EXPECT_EQ(InferF32("attention", {{2, 5, 12}}, {{"heads", int64_t{2}}}), "f32[2, 5, 4] f32[2, 2, 5]");
  EXPECT_THAT(InferF32("attention", {{2, 5, 12}}, {{"heads", int64_t{3}}}), HasSubstr("multiple of 3 heads"));
  EXPECT_EQ(Infer("embedding", {{"i32", {2, 5}}}, {{"vocab", int64_t{9}}, {"dim", int64_t{4}}, {"positions", int64_t{5}}}), "f32[2, 5, 4]");
  EXPECT_THAT(Infer("embedding", {{"i32", {2, 5}}}, {{"vocab", int64_t{9}}, {"dim", int64_t{4}}, {"positions", int64_t{4}}}),
              HasSubstr("passes its 4 positions"));
}

TEST(ShapeRuleTest, ImagesNormsAndReductions) {
  const Ints image = {2, 7, 8, 6};
  EXPECT_EQ(
      InferF32("conv2d", {image},
               {{"out", int64_t{4}}, {"kernel", Ints{3, 3}}, {"stride", Ints{2, 2}}, {"padding", Ints{1, 1}}, {"groups", int64_t{2}}}),
      "f32[2, 4, 4, 4]");
  EXPECT_THAT(InferF32("conv2d", {image}, {{"out", int64_t{4}}, {"kernel", Ints{9, 3}}}), HasSubstr("a window of 9 does not fit"));
  EXPECT_THAT(InferF32("conv2d", {image}, {{"out", int64_t{4}}, {"kernel", Ints{3, 3}}, {"groups", int64_t{4}}}), HasSubstr("4 groups"));
  EXPECT_EQ(InferF32("max_pool2d", {image}, {{"kernel", Ints{3, 3}}, {"stride", Ints{2, 2}}, {"padding", Ints{1, 1}}}),
            "f32[2, 4, 4, 6] i32[2, 4, 4, 6]");
  EXPECT_THAT(InferF32("avg_pool2d", {image}, {{"kernel", Ints{3, 3}}, {"stride", Ints{2, 2}}, {"padding", Ints{2, 2}}}),
              HasSubstr("half"));
  EXPECT_EQ(InferF32("global_avg_pool", {image}), "f32[2, 6]");
  EXPECT_EQ(InferF32("batch_norm", {image}), "f32[2, 7, 8, 6] f32[6] f32[6]");
  EXPECT_EQ(InferF32("layer_norm", {{2, 3, 4}}), "f32[2, 3, 4] f32[6] f32[6]");
  EXPECT_EQ(InferF32("reduce", {{2, 3, 4}}, {{"kind", std::string("mean")}, {"axes", Ints{0, 2}}}), "f32[3]");
  EXPECT_EQ(InferF32("reduce", {{2, 3}}, {{"kind", std::string("sum")}, {"axes", Ints{0, 1}}, {"keep_dims", true}}), "f32[1, 1]");
  EXPECT_THAT(InferF32("reduce", {{2, 3}}, {{"kind", std::string("sum")}, {"axes", Ints{1, 0}}}), HasSubstr("ascend"));
  EXPECT_EQ(Infer("cross_entropy", {{"f32", {2, 5, 9}}, {"i32", {2, 5}}}), "f32[] f32[] f32[10] f32[]");
  EXPECT_THAT(Infer("cross_entropy", {{"f32", {2, 9}}, {"i32", {3}}}), HasSubstr("labels"));
}

TEST(SchemaTest, EveryOpHasWhatTheTablePromises) {
  EXPECT_GT(AllSchemas().size(), 50u);
  for (const OpSchema* schema : AllSchemas()) {
    SCOPED_TRACE(schema->name());
    EXPECT_EQ(FindSchema(schema->name()), schema);
    EXPECT_TRUE(schema->infer && schema->parameter_count && schema->output_count && schema->parameter_types);
    EXPECT_FALSE(schema->outputs.empty());
    if (schema->op_class != OpClass::kFree && schema->op_class != OpClass::kDataMovement) {
      EXPECT_TRUE(schema->flops) << "an op that computes needs a FLOP rule";
    }
  }
  EXPECT_EQ(FindSchema("no_such_op"), nullptr);
}

TEST(CostTest, CountsAMultiplyAddTwiceAndEachTensorOnce) {
  GraphBuilder builder("g");
  const ValueId x = builder.Placeholder("x", "images", "f32", {8, 4});
  builder.Add("fc", "linear", {x}, {{"out", int64_t{3}}});
  const OpCost cost = CostOf(builder.graph(), builder.graph().op(1));
  EXPECT_EQ(cost.flops, 2 * 8 * 4 * 3);
  EXPECT_EQ(cost.bytes_read, 4 * (8 * 4 + 4 * 3 + 3));
  EXPECT_EQ(cost.bytes_written, 4 * 8 * 3);
}

}  // namespace
}  // namespace fusionllm::opdag
