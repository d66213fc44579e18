#include "lib/opdag/activation_kind.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/mlp/graph.h"
#include "lib/models/resnet/graph.h"
#include "lib/opdag/text.h"

namespace fusionllm::opdag {
namespace {

using enum ActivationKind;

class KindByName {
 public:
  explicit KindByName(absl::StatusOr<Graph> graph) : graph_(*std::move(graph)) {
    EXPECT_TRUE(InferTypes(graph_, 2).ok());
    const std::vector<ActivationKind> kinds = ActivationKindsOf(graph_, static_cast<OpId>(graph_.ops().size()));
    for (size_t v = 0; v < kinds.size(); ++v) kinds_[graph_.value(static_cast<ValueId>(v)).name] = kinds[v];
  }
  absl::string_view operator[](const std::string& value) const { return kinds_.contains(value) ? Name(kinds_.at(value)) : "no such value"; }

 private:
  Graph graph_;
  std::map<std::string, ActivationKind> kinds_;
};

TEST(ActivationKindTest, GptTellsLogitsStreamQueriesAndInsidesApart) {
  const KindByName kind(models::BuildGpt2({.layers = 2, .heads = 2, .embd = 8, .vocab = 11, .positions = 6, .sequence = 4}));
  EXPECT_EQ(kind["tokens"], "data");
  EXPECT_EQ(kind["targets"], "data");
  EXPECT_EQ(kind["embed"], "residual");
  EXPECT_EQ(kind["block.0.ln_1"], "normalized");
  EXPECT_EQ(kind["block.0.attn.c_attn"], "attention_input");
  EXPECT_EQ(kind["block.0.attn"], "hidden");
  EXPECT_EQ(kind["block.0.attn.c_proj"], "hidden");
  EXPECT_EQ(kind["block.0.attn.add"], "inner_residual");
  EXPECT_EQ(kind["block.1.mlp.c_fc"], "hidden");
  EXPECT_EQ(kind["block.1.mlp.gelu"], "hidden");
  EXPECT_EQ(kind["block.0.mlp.add"], "inner_residual");
  EXPECT_EQ(kind["block.1.attn.add"], "inner_residual");
  EXPECT_EQ(kind["block.1.mlp.add"], "residual");
  EXPECT_EQ(kind["ln_f"], "normalized");
  EXPECT_EQ(kind["lm_head"], "loss_input");
}

TEST(ActivationKindTest, ResNetStreamIsTheRectifiedSum) {
  const KindByName kind(models::BuildResNet({.depth = 18, .stem = "cifar", .num_classes = 10, .image_size = 8}));
  EXPECT_EQ(kind["images"], "data");
  EXPECT_EQ(kind["relu"], "residual");  // of the stem: what the first skip connection carries
  EXPECT_EQ(kind["layer1.0.conv1"], "hidden");
  EXPECT_EQ(kind["layer1.0.bn1"], "normalized");
  EXPECT_EQ(kind["layer1.0.relu1"], "hidden");
  EXPECT_EQ(kind["layer1.0.add"], "residual");
  EXPECT_EQ(kind["layer1.0.relu"], "residual");
  EXPECT_EQ(kind["layer2.0.downsample.1"], "normalized");
  EXPECT_EQ(kind["layer4.1.add"], "residual");
  EXPECT_EQ(kind["layer4.1.relu"], "residual");
  EXPECT_EQ(kind["avgpool"], "hidden");
  EXPECT_EQ(kind["fc"], "loss_input");
}

TEST(ActivationKindTest, MlpHasHiddenValuesAndLogits) {
  const KindByName kind(models::BuildMlp({.layers = {12, 8, 8, 5}, .activation = "relu"}));
  EXPECT_EQ(kind["images"], "data");
  EXPECT_EQ(kind["layers.0"], "hidden");
  EXPECT_EQ(kind["layers.1.relu"], "hidden");
  EXPECT_EQ(kind["layers.2"], "loss_input");
}

// Two branches with attention written out, a second loss, logits that are scaled, shifted and reshaped.
constexpr char kBranched[] = R"(graph "branched" {
  x = placeholder() {role="images", dtype="f32", shape=[b, 4, 6]}
  y = placeholder() {role="labels", dtype="i32", shape=[b]}
  mask = constant() {value=0.5, shape=[b, 4, 4]}
  frozen_fc = linear(x; @frozen.weight) {out=6, bias=false}
  fc = linear(frozen_fc) {out=6}
  norm = layer_norm(fc)
  q = linear(norm) {out=6}
  k = linear(norm) {out=6}
  v = linear(norm) {out=6}
  k_turned = transpose(k) {permutation=[0, 2, 1]}
  scores = matmul(q, k_turned)
  scaled = scale(scores) {factor=0.4}
  masked = add(scaled, mask)
  shares = softmax(masked)
  mixed = matmul(shares, v)
  left = linear(mixed) {out=6}
  dropped = dropout(left) {rate=0.1}
  sum = add(fc, dropped)
  act = relu(sum)
  gated = mul(act, k)
  flat = flatten(gated)
  head = linear(flat) {out=5, bias=false}
  shift = linear(bias_of; @shift.weight) {out=5, bias=false}
  bias_of = constant() {value=1, shape=[1, 3]}
  shifted = add(head, shift)
  soft = scale(shifted) {factor=0.1}
  capped = tanh(soft)
  logits = reshape(capped) {shape=[b, 5]}
  ce = cross_entropy(logits, y)
  reconstruction = linear(act) {out=6}
  error = sub(reconstruction, x)
  squares = square(error)
  mean = reduce(squares) {kind="mean", axes=[0, 1, 2]}
  weighted = scale(mean) {factor=0.5}
  loss = add(ce, weighted)
  param @frozen.weight f32[6, 6] normal(0.1) frozen
  return loss
}
)";

TEST(ActivationKindTest, LossInputsAreFoundThroughWhatLearnsNothing) {
  const KindByName kind(ParseGraph(kBranched, "branched.dag"));
  for (const char* value : {"logits", "capped", "soft", "shifted", "head"}) EXPECT_EQ(kind[value], "loss_input") << value;
  // A loss composed of plain ops, of two terms.
  for (const char* value : {"ce", "weighted", "mean", "squares", "error", "reconstruction"}) EXPECT_EQ(kind[value], "loss_input") << value;
  for (const char* value : {"flat", "gated"}) EXPECT_EQ(kind[value], "hidden") << value;
}

TEST(ActivationKindTest, AttentionOfPlainOpsIsFoundByItsProducts) {
  const KindByName kind(ParseGraph(kBranched, "branched.dag"));
  for (const char* value : {"q", "k", "v", "k_turned", "shares", "masked", "scaled", "scores"}) {
    EXPECT_EQ(kind[value], "attention_input") << value;
  }
  EXPECT_EQ(kind["mixed"], "hidden");
}

TEST(ActivationKindTest, SkipConnectionsMakeTheStream) {
  const KindByName kind(ParseGraph(kBranched, "branched.dag"));
  EXPECT_EQ(kind["fc"], "residual");  // the sum reads it beside the norm
  EXPECT_EQ(kind["norm"], "normalized");
  for (const char* value : {"left", "dropped"}) EXPECT_EQ(kind[value], "hidden") << value;
  for (const char* value : {"sum", "act"}) EXPECT_EQ(kind[value], "residual") << value;
}

// A pre-norm stream of two blocks over token and position embeddings; the second block has parallel branches. Two losses are added up.
constexpr char kPreNorm[] = R"(graph "pre-norm" {
  tokens = placeholder() {role="tokens", dtype="i32", shape=[b, 4]}
  places = placeholder() {role="places", dtype="i32", shape=[b, 4]}
  y = placeholder() {role="targets", dtype="i32", shape=[b, 4]}
  word = embedding(tokens) {vocab=9, dim=6}
  place = embedding(places) {vocab=4, dim=6}
  start = add(word, place)
  norm = layer_norm(start)
  up = linear(norm) {out=6}
  one = add(start, up)
  turned = transpose(one) {permutation=[0, 2, 1]}
  turned_back = transpose(turned) {permutation=[0, 2, 1]}
  norm_two = layer_norm(turned_back)
  left = linear(norm_two) {out=6}
  right = linear(norm_two) {out=6}
  branches = add(left, right)
  two = add(turned_back, branches)
  head = linear(two) {out=9}
  first = cross_entropy(head, y)
  other = linear(two) {out=9}
  second = cross_entropy(other, y)
  loss = add(first, second)
  return loss
}
)";

TEST(ActivationKindTest, AStreamIsInnerBetweenItsBlocksAlone) {
  const KindByName kind(ParseGraph(kPreNorm, "pre-norm.dag"));
  for (const char* value : {"word", "place", "start"}) EXPECT_EQ(kind[value], "residual") << value;
  for (const char* value : {"one", "turned", "turned_back"}) EXPECT_EQ(kind[value], "inner_residual") << value;
  EXPECT_EQ(kind["branches"], "residual");  // it carries no skip connection
  EXPECT_EQ(kind["two"], "residual");       // losses that are added up are no blocks
}

// A pre-norm stream whose last sum is the prediction itself.
constexpr char kStreamIntoALoss[] = R"(graph "stream-into-a-loss" {
  x = placeholder() {role="images", dtype="f32", shape=[b, 6]}
  y = placeholder() {role="images", dtype="f32", shape=[b, 6]}
  start = linear(x) {out=6}
  norm.0 = layer_norm(start)
  up.0 = linear(norm.0) {out=6}
  sum.0 = add(start, up.0)
  norm.1 = layer_norm(sum.0)
  up.1 = linear(norm.1) {out=6}
  sum.1 = add(sum.0, up.1)
  norm.2 = layer_norm(sum.1)
  up.2 = linear(norm.2) {out=6}
  sum.2 = add(sum.1, up.2)
  loss = mse(sum.2, y)
  return loss
}
)";

TEST(ActivationKindTest, WhatTheLastSumBeforeALossCarriesIsNotInner) {
  const KindByName kind(ParseGraph(kStreamIntoALoss, "stream-into-a-loss.dag"));
  EXPECT_EQ(kind["sum.0"], "inner_residual");
  EXPECT_EQ(kind["sum.1"], "residual");
  EXPECT_EQ(kind["sum.2"], "loss_input");
}

// Sums that look like a stream: post-norm, where the norm is what is carried; rectified before they are carried; read by no norm.
constexpr char kOtherSums[] = R"(graph "other-sums" {
  x = placeholder() {role="images", dtype="f32", shape=[b, 6]}
  y = placeholder() {role="labels", dtype="i32", shape=[b]}
  fc = linear(x) {out=6}
  post = linear(fc) {out=6}
  post.sum = add(fc, post)
  post.norm = layer_norm(post.sum)
  next = linear(post.norm) {out=6}
  next.sum = add(post.norm, next)
  act = relu(next.sum)
  plain = linear(act) {out=6}
  plain.sum = add(act, plain)
  last = linear(plain.sum) {out=6}
  last.sum = add(plain.sum, last)
  head = linear(last.sum) {out=5}
  loss = cross_entropy(head, y)
  return loss
}
)";

TEST(ActivationKindTest, SumsThatAreNoPreNormStreamAreNotInner) {
  const KindByName kind(ParseGraph(kOtherSums, "other-sums.dag"));
  for (const char* value : {"fc", "post.sum", "post.norm", "next.sum", "act", "plain.sum", "last.sum"})
    EXPECT_EQ(kind[value], "residual") << value;
}

TEST(ActivationKindTest, WhatNoParameterMadeIsData) {
  const KindByName kind(ParseGraph(kBranched, "branched.dag"));
  for (const char* value : {"x", "y", "mask", "bias_of", "frozen_fc"}) EXPECT_EQ(kind[value], "data") << value;
}

TEST(ActivationKindTest, ValuesBehindTheForwardOpsAreData) {
  Graph graph = *models::BuildMlp({.layers = {12, 8, 5}, .activation = "relu"});
  ASSERT_TRUE(InferTypes(graph, 2).ok());
  const std::vector<ActivationKind> kinds = ActivationKindsOf(graph, graph.FindOp("layers.0.relu"));
  EXPECT_EQ(kinds[graph.op(graph.FindOp("layers.0")).outputs[0]], kHidden);
  EXPECT_EQ(kinds[graph.op(graph.FindOp("layers.1")).outputs[0]], kData);
}

TEST(ActivationKindTest, NamesReadBack) {
  for (int i = 0; i < kActivationKindCount; ++i) {
    const auto kind = static_cast<ActivationKind>(i);
    EXPECT_EQ(*ParseActivationKind(Name(kind)), kind);
  }
  EXPECT_THAT(std::string(ParseActivationKind("logits").status().message()), ::testing::HasSubstr("'logits'"));
}

}  // namespace
}  // namespace fusionllm::opdag
