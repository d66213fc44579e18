#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/models/gpt2.h"
#include "lib/opdag/models/mlp.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::opdag {
namespace {

using testing::HasSubstr;

int64_t TrainableElements(const Graph& graph) {
  int64_t total = 0;
  for (const Parameter& parameter : graph.parameters()) total += parameter.trainable ? parameter.type.elements() : 0;
  return total;
}

TEST(Gpt2Test, HasThePublishedParameterCounts) {
  EXPECT_EQ(TrainableElements(*BuildGpt2({})), 124'439'808);
  EXPECT_EQ(TrainableElements(*BuildGpt2({.layers = 24, .heads = 16, .embd = 1024})), 354'823'168);
  EXPECT_EQ(TrainableElements(*BuildGpt2({.tied = false})), 124'439'808 + 50257 * 768);
}

TEST(Gpt2Test, NamesShapesAndStartsAsHuggingFace) {
  const GptOptions options{.layers = 2, .heads = 2, .embd = 8, .vocab = 11, .positions = 6, .sequence = 4};
  Graph graph = *BuildGpt2(options);
  ASSERT_TRUE(InferTypes(graph, 3).ok());
  ASSERT_TRUE(Verify(graph).ok());
  EXPECT_EQ(graph.parameters().size(), 2u + 2 * 12 + 2);
  const Parameter& attention = graph.parameter(graph.FindParameter("transformer.h.1.attn.c_attn.weight"));
  EXPECT_EQ(attention.type.ToString(), "f32[8, 24]");
  EXPECT_EQ(attention.initializer, (Initializer{Initializer::Kind::kNormal, 0.02}));
  const Parameter& projection = graph.parameter(graph.FindParameter("transformer.h.0.mlp.c_proj.weight"));
  EXPECT_EQ(projection.type.ToString(), "f32[32, 8]");
  EXPECT_DOUBLE_EQ(projection.initializer.scale, 0.01);
  EXPECT_EQ(graph.parameter(graph.FindParameter("transformer.ln_f.weight")).initializer.kind, Initializer::Kind::kOnes);
  EXPECT_EQ(graph.parameter(graph.FindParameter("transformer.h.0.attn.c_attn.bias")).initializer.kind, Initializer::Kind::kZeros);
  const Op& head = graph.op(graph.FindOp("lm_head"));
  EXPECT_EQ(graph.parameter(head.parameters[0]).name, "transformer.wte.weight");
  EXPECT_EQ(graph.value(head.outputs[0]).type.ToString(), "f32[3, 4, 11]");
  EXPECT_EQ(graph.FindParameter("lm_head.weight"), kNone);
}

TEST(Gpt2Test, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(std::string(BuildGpt2({.heads = 7}).status().message()), HasSubstr("multiple of 7 heads"));
  EXPECT_THAT(std::string(BuildGpt2({.positions = 8, .sequence = 9}).status().message()), HasSubstr("sequence of 9"));
  EXPECT_FALSE(BuildGpt2({.layers = int64_t{1} << 60}).ok());
  EXPECT_FALSE(BuildGpt2({.vocab = int64_t{1} << 60}).ok());
}

TEST(MlpTest, StacksLinearLayersAndActivations) {
  Graph graph = *BuildMlp({.layers = {784, 256, 10}, .activation = "relu"});
  EXPECT_EQ(TrainableElements(graph), 784 * 256 + 256 + 256 * 10 + 10);
  ASSERT_TRUE(InferTypes(graph, 4).ok());
  EXPECT_EQ(graph.op(graph.FindOp("layers.0.relu")).type, "relu");
  EXPECT_EQ(graph.FindOp("layers.1.relu"), kNone);
  EXPECT_FALSE(BuildMlp({.layers = {3}}).ok());
  EXPECT_FALSE(BuildMlp({.layers = {3, 2}, .activation = "swish"}).ok());
}

}  // namespace
}  // namespace fusionllm::opdag
