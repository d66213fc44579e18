#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/mlp/graph.h"
#include "lib/models/resnet/graph.h"
#include "lib/opdag/accounting.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::models {
namespace {

using opdag::CostOf;
using opdag::FootprintOf;
using opdag::Graph;
using opdag::InferTypes;
using opdag::Initializer;
using opdag::kNone;
using opdag::Op;
using opdag::OpKind;
using opdag::Parameter;
using opdag::ParameterId;
using opdag::Verify;
using ::testing::HasSubstr;

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
  EXPECT_EQ(graph.op(graph.FindOp("layers.0.relu")).kind, OpKind::kRelu);
  EXPECT_EQ(graph.FindOp("layers.1.relu"), kNone);
  EXPECT_FALSE(BuildMlp({.layers = {3}}).ok());
  EXPECT_FALSE(BuildMlp({.layers = {3, 2}, .activation = "swish"}).ok());
}

TEST(ResNetTest, HasThePublishedParameterCounts) {
  const std::pair<int, int64_t> published[] = {{18, 11'689'512}, {34, 21'797'672}, {50, 25'557'032}, {101, 44'549'160}, {152, 60'192'808}};
  for (const auto& [depth, parameters] : published) EXPECT_EQ(TrainableElements(*BuildResNet({.depth = depth})), parameters) << depth;
}

TEST(ResNetTest, CountsTheFlopsOfItsConvolutions) {
  // 1.81 and 4.09 giga multiply-adds, as published for 224 x 224.
  const std::pair<int, double> published[] = {{18, 1.81e9}, {50, 4.09e9}};
  for (const auto& [depth, multiply_adds] : published) {
    Graph graph = *BuildResNet({.depth = depth});
    ASSERT_TRUE(InferTypes(graph, 1).ok());
    double flops = 0;
    for (const Op& op : graph.ops()) {
      if (op.kind == OpKind::kConv2d || op.kind == OpKind::kLinear) flops += CostOf(graph, op).flops;
    }
    EXPECT_NEAR(flops / 2, multiply_adds, 0.01e9);
  }
}

TEST(ResNetTest, NamesAndShapesAreTorchvisions) {
  Graph graph = *BuildResNet({.depth = 50});
  ASSERT_TRUE(InferTypes(graph, 2).ok());
  EXPECT_EQ(graph.parameters().size(), 320u);  // len(torchvision.models.resnet50().state_dict())
  const auto type = [&graph](absl::string_view name) {
    const ParameterId id = graph.FindParameter(name);
    return id == kNone ? std::string("absent") : graph.parameter(id).type.ToString();
  };
  EXPECT_EQ(type("conv1.weight"), "f32[64, 3, 7, 7]");
  EXPECT_EQ(type("layer1.0.downsample.0.weight"), "f32[256, 64, 1, 1]");
  EXPECT_EQ(type("layer4.2.bn3.running_var"), "f32[2048]");
  EXPECT_EQ(type("bn1.num_batches_tracked"), "i64[]");
  EXPECT_EQ(type("fc.weight"), "f32[1000, 2048]");
  EXPECT_EQ(graph.op(graph.FindOp("layer2.0.conv2")).attributes.Ints("stride"), (std::vector<int64_t>{2, 2})) << "stride on the 3x3";
  EXPECT_FALSE(graph.parameter(graph.FindParameter("bn1.running_mean")).trainable);
  EXPECT_NEAR(graph.parameter(graph.FindParameter("conv1.weight")).initializer.scale, std::sqrt(2.0 / (64 * 49)), 1e-12);
  EXPECT_EQ(graph.value(graph.op(graph.FindOp("layer4.2.relu")).outputs[0]).type.ToString(), "f32[2, 7, 7, 2048]");
}

TEST(ResNetTest, TheCifarStemKeepsTheResolution) {
  Graph graph = *BuildResNet({.depth = 18, .stem = "cifar", .num_classes = 10, .image_size = 32});
  ASSERT_TRUE(InferTypes(graph, 2).ok());
  EXPECT_EQ(FootprintOf(graph).parameters, 11'173'962);
  EXPECT_EQ(graph.FindOp("maxpool"), kNone);
  EXPECT_EQ(graph.value(graph.op(graph.FindOp("relu")).outputs[0]).type.ToString(), "f32[2, 32, 32, 64]");
  EXPECT_FALSE(BuildResNet({.depth = 20}).ok());
  EXPECT_FALSE(BuildResNet({.stem = "mnist"}).ok());
}

}  // namespace
}  // namespace fusionllm::models
