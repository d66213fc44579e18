#include "lib/opdag/op_hints.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/op_position.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/text.h"

namespace fusionllm::opdag {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A graph whose third line is `line`, on x of [b, 8].
std::string GraphWith(absl::string_view line) {
  return absl::StrCat("graph \"g\" {\n  x = placeholder() {role=\"images\", dtype=\"f32\", shape=[b, 8]}\n  ", line, "\n}\n");
}

std::string HintErrorOf(absl::string_view line) {
  const absl::StatusOr<Graph> graph = ParseGraph(GraphWith(line), "model.dag");
  return graph.ok() ? "parsed" : std::string(graph.status().message());
}

TEST(OpHintsTest, OpsOfOtherFrameworksAreMadeOfThoseThereAre) {
  for (const char* name : {"silu", "swish", "SiLU"}) {
    EXPECT_EQ(HintErrorOf(absl::StrCat("y = ", name, "(x)")),
              absl::StrCat("model.dag:3:7: no op type is named '", name,
                           "'; it is x times its sigmoid: write gate = sigmoid(x), then y = "
                           "mul(x, gate)"));
  }
  for (const char* name : {"rms_norm", "RMSNorm", "rope"}) {
    EXPECT_THAT(HintErrorOf(absl::StrCat("y = ", name, "(x)")), HasSubstr("docs/tasks/own-graph.md")) << name;
  }
}

TEST(OpHintsTest, WhatAHintWritesIsAGraph) {
  EXPECT_EQ(HintErrorOf("gate = sigmoid(x) y = mul(x, gate)"), "parsed");
  EXPECT_EQ(HintErrorOf("y = reduce(x) {axes=[1], kind=\"mean\"}"), "parsed");
}

TEST(OpHintsTest, OpsOfAnotherNameAreNamed) {
  const struct {
    const char* word;
    const char* op;
  } cases[] = {{"Dense", "linear"},        {"LayerNormalization", "layer_norm"},
               {"cat", "concat"},          {"permute", "transpose"},
               {"view", "reshape"},        {"GlobalAveragePool", "global_avg_pool"},
               {"MaxPool", "max_pool2d"},  {"BatchNorm2d", "batch_norm"},
               {"conv", "conv2d"},         {"mse_loss", "mse"},
               {"expand", "broadcast_to"}, {"einsum", "matmul"},
               {"avgpool", "avg_pool2d"},  {"cross_entropy_loss", "cross_entropy"},
               {"divide", "div"},          {"multiply", "mul"},
               {"subtract", "sub"},        {"chunk", "split"}};
  for (const auto& c : cases) {
    EXPECT_EQ(HintForOp(c.word), absl::StrCat("did you mean '", c.op, "'?"));
    EXPECT_NE(FindSchema(c.op), nullptr) << c.op;
  }
}

TEST(OpHintsTest, OpsThatExistNeedNoHint) {
  for (const OpSchema* schema : AllSchemas()) EXPECT_EQ(HintForOp(schema->name()), "") << schema->name();
}

TEST(OpHintsTest, AttributesAmongTheInputsAreSentIntoBraces) {
  EXPECT_EQ(HintErrorOf("y = linear(x, bias=False)"),
            "model.dag:3:17: attributes stand in braces behind the inputs: write linear(x) {bias=false}");
  EXPECT_THAT(HintErrorOf("y = gelu(x, approximate=\"none\")"), HasSubstr("write gelu(x) {approximate=\"none\"}"));
  EXPECT_THAT(HintErrorOf("y = reduce(x, axes=[1])"), HasSubstr("write reduce(x) {axes=..}"));
}

TEST(OpHintsTest, TrueAndFalseAreSmall) {
  EXPECT_EQ(HintErrorOf("y = linear(x) {out=2, bias=False}"), "model.dag:3:30: found 'False'; write false");
  EXPECT_THAT(HintErrorOf("y = linear(x) {out=2, bias=TRUE}"), HasSubstr("write true"));
  EXPECT_EQ(HintErrorOf("y = linear(x) {out=2, bias=false}"), "parsed");
  EXPECT_THAT(HintErrorOf("y = linear(x) {out=2, bias=none}"), Not(HasSubstr("write")));
}

TEST(OpPositionTest, IsThatOfTheOpsName) {
  const std::string text = GraphWith("fc = linear(x) {out=2}");
  EXPECT_EQ(PositionOfOp(text, "x"), "2:3");
  EXPECT_EQ(PositionOfOp(text, "fc"), "3:3");
  EXPECT_EQ(PositionOfOp(text, "nobody"), "");
  EXPECT_EQ(PositionOfOp("no graph", "x"), "");
}

}  // namespace
}  // namespace fusionllm::opdag
