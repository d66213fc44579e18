#include "lib/opdag/target_weights.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/opdag/text.h"

namespace fusionllm::opdag {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A classifier with a loss made of what the statements say.
Graph WithLoss(absl::string_view statements) {
  const absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat(R"(graph "g" {
  x = placeholder() {role="images", dtype="f32", shape=[b, 8]}
  y = placeholder() {role="labels", dtype="i32", shape=[b]}
  logits = linear(x) {out=4}
  ce = cross_entropy(logits, y)
)",
                                                              statements, "\n  return loss\n}\n"),
                                                 "test.dag");
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *graph;
}

Graph Weighed(const Graph& graph) {
  const absl::StatusOr<Graph> weighed = AddTargetWeights(graph);
  EXPECT_TRUE(weighed.ok()) << weighed.status();
  Graph typed = *weighed;
  EXPECT_TRUE(InferTypes(typed, 4).ok());
  EXPECT_TRUE(Verify(typed).ok()) << Verify(typed);
  return *weighed;
}

TEST(TargetWeights, GraphWhoseLossIsItsCrossEntropyStaysAsItIs) {
  const Graph graph = WithLoss("loss = cross_entropy(logits, y)");
  EXPECT_EQ(PrintGraph(Weighed(graph)), PrintGraph(graph));
  const Graph without = WithLoss("s = square(logits) loss = reduce(s) {kind=\"mean\", axes=[0, 1]}");
  EXPECT_EQ(PrintGraph(Weighed(without)), PrintGraph(without));
}

TEST(TargetWeights, LossThatOtherOpsReadIsWeighedBetweenThem) {
  const Graph weighed = Weighed(WithLoss("loss = scale(ce) {factor=2.0}"));
  const std::string text = PrintGraph(weighed);
  EXPECT_THAT(text, HasSubstr("ce.counted_loss = mul(ce, ce:counted)"));
  EXPECT_THAT(text, HasSubstr("ce.weighed_loss = mul(ce.counted_loss, ce.target_weight)"));
  EXPECT_THAT(text, HasSubstr("loss = scale(ce.weighed_loss)"));
  const Op& weight = weighed.op(weighed.FindOp("ce.target_weight"));
  EXPECT_EQ(weight.attributes.Text("of"), "ce");
  EXPECT_EQ(weighed.FindOp("ce.target_weight"), weighed.FindOp("y") + 1) << "where the labels are";
}

TEST(TargetWeights, WeighedGraphIsNotWeighedAgainInItsTextFormEither) {
  const Graph weighed = Weighed(WithLoss("aux = cross_entropy(logits, y) {ignore_index=2} loss = add(ce, aux)"));
  EXPECT_EQ(PrintGraph(Weighed(weighed)), PrintGraph(weighed));
  const absl::StatusOr<Graph> read = ParseGraph(PrintGraph(weighed), "printed.dag");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(PrintGraph(Weighed(*read)), PrintGraph(weighed));
  EXPECT_EQ(TargetOps(weighed).size(), 2u);
}

TEST(TargetWeights, LinearFunctionsOfACrossEntropyAreTaken) {
  for (const char* statements : {
           "c = constant() {value=0.5, shape=[]} m = mul(c, ce) loss = div(m, c)",
           "n = neg(ce) m = neg(n) loss = sub(m, ce)",
           "r = reshape(ce) {shape=[1]} k = concat(r, r) {axis=0} loss = reduce(k) {kind=\"sum\", axes=[0]}",
           "s = square(logits) p = reduce(s) {kind=\"mean\", axes=[0, 1]} q = sqrt(p) loss = add(ce, q)",
       }) {
    EXPECT_NE(Weighed(WithLoss(statements)).FindOp("ce.target_weight"), kNone) << statements;
  }
}

TEST(TargetWeights, OtherFunctionsOfACrossEntropyAreRefusedByTheNameOfTheOp) {
  const struct {
    const char *statements, *op;
  } cases[] = {
      {"loss = exp(ce)", "op 'loss' (exp)"},
      {"loss = mul(ce, ce)", "op 'loss' (mul)"},
      {"half = scale(ce) {factor=0.5} p = square(half) loss = add(ce, p)", "op 'p' (square)"},
      {"c = constant() {value=1.0, shape=[]} loss = div(c, ce)", "op 'loss' (div)"},
      {"m = reduce(x) {kind=\"mean\", axes=[0, 1]} loss = mul(ce, m)", "op 'loss' (mul)"},
      {"c = constant() {value=1.0, shape=[]} d = dropout(c) {rate=0.5} loss = mul(ce, d)", "op 'loss' (mul)"},
      {"loss = mul(ce, ce:counted)", "op 'loss' (mul)"},
      {"r = reshape(ce) {shape=[1]} k = concat(r, r) {axis=0} loss = reduce(k) {kind=\"max\", axes=[0]}", "op 'loss' (reduce)"},
  };
  for (const auto& [statements, op] : cases) {
    const absl::StatusOr<Graph> refused = AddTargetWeights(WithLoss(statements));
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << statements;
    EXPECT_THAT(refused.status().message(), AllOf(HasSubstr(op), HasSubstr("'ce'"))) << statements;
  }
}

TEST(TargetWeights, RoleOfAWeightIsRefusedElsewhere) {
  const Graph graph = WithLoss("w = placeholder() {role=\"target_weight\", dtype=\"f32\", shape=[]} loss = add(ce, w)");
  EXPECT_THAT(AddTargetWeights(graph).status().message(), HasSubstr("op 'w' (placeholder)"));
}

}  // namespace
}  // namespace fusionllm::opdag
