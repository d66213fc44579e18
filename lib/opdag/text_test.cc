#include "lib/opdag/text.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/models/gpt2/graph.h"
#include "lib/opdag/testing/random_graph.h"

namespace fusionllm::opdag {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kMlp[] = R"(graph "mlp" {
  # Statements stand in any order.
  return loss
  loss, correct = cross_entropy(head, y)
  watch = scale(correct) {factor=2}
  head = linear(act; @tied.weight, @head.bias) {out=10, layout="oi"}
  act = relu(fc)
  fc = linear(x) {out=256}
  x = placeholder() {role="images", dtype="f32", shape=[b, 784]}
  y = placeholder() {role="labels", dtype="i32", shape=[b]}
  param @fc.weight f32[784, 256] normal(0.02)
  param @head.bias f32[10] zeros frozen
}
)";

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<Graph> graph = ParseGraph(text, "model.dag");
  return graph.ok() ? "parsed" : std::string(graph.status().message());
}

std::string Replaced(absl::string_view from, absl::string_view to) { return absl::StrReplaceAll(kMlp, {{from, to}}); }

TEST(TextTest, ReadsWhatPeopleWrite) {
  absl::StatusOr<Graph> graph = ParseGraph(kMlp, "model.dag");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->name(), "mlp");
  EXPECT_EQ(graph->ops().size(), 7u);
  EXPECT_EQ(graph->op(0).name, "x");
  EXPECT_EQ(graph->value(graph->loss()).name, "loss");
  EXPECT_EQ(graph->value(graph->op(graph->FindOp("watch")).inputs[0]).name, "loss:correct");
  const Parameter& weight = graph->parameter(graph->FindParameter("fc.weight"));
  EXPECT_EQ(weight.initializer, (Initializer{Initializer::Kind::kNormal, 0.02}));
  EXPECT_FALSE(graph->parameter(graph->FindParameter("head.bias")).trainable);
  EXPECT_EQ(graph->parameter(graph->FindParameter("tied.weight")).type.ToString(), "f32[10, 256]");
  EXPECT_EQ(graph->batch(), 0);
  ASSERT_TRUE(InferTypes(*graph, 4).ok());
}

TEST(TextTest, OpsThatAreReadyKeepTheOrderOfTheText) {
  const Graph graph = *ParseGraph(
      "graph \"g\" { d = add(c, a) c = neg(a) e = neg(a) a = placeholder() {role=\"r\", dtype=\"f32\", shape=[b]} f = neg(a) }", "g.dag");
  std::string order;
  for (const Op& op : graph.ops()) order += op.name;
  EXPECT_EQ(order, "acdef");
}

TEST(TextTest, ErrorsNameLineAndColumn) {
  EXPECT_THAT(ErrorOf(Replaced("relu(fc)", "relu(fd)")), StartsWith("model.dag:7:14: nothing is named 'fd'; did you mean 'fc'?"));
  EXPECT_THAT(ErrorOf(Replaced("act = relu", "act = rely")),
              AllOf(StartsWith("model.dag:7:9: no op type is named 'rely'; did you mean 'relu'? There are: add, "), HasSubstr(", relu, "),
                    Not(HasSubstr("relu_grad"))));
  EXPECT_THAT(ErrorOf(Replaced("act = relu", "act = gellu")), HasSubstr("did you mean 'gelu'?"));
  EXPECT_THAT(ErrorOf(Replaced("act = relu", "act = zigzag")), AllOf(HasSubstr("'zigzag'; There are: "), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(ErrorOf(Replaced("act = relu(fc)", "fc = relu(x)")), HasSubstr("the name 'fc' is taken, on line "));
  EXPECT_THAT(ErrorOf(Replaced("relu(fc)", "relu(fc, fc)")), HasSubstr("has 2 inputs and takes 1"));
  EXPECT_THAT(ErrorOf(Replaced("{out=256}", "{oat=256}")), StartsWith("model.dag:8:8: op 'fc' (linear) has no attribute 'oat'"));
  EXPECT_THAT(ErrorOf(Replaced("{out=256}", "{}")), HasSubstr("needs the attribute 'out'"));
  EXPECT_THAT(ErrorOf(Replaced("{out=256}", "{out=2, out=3}")), StartsWith("model.dag:8:26: attribute 'out' is given twice"));
  EXPECT_THAT(ErrorOf(Replaced("f32[784, 256]", "f32[784, 255]")),
              StartsWith("model.dag:11:10: parameter 'fc.weight' is described as f32[784, 255]"));
  EXPECT_THAT(ErrorOf(Replaced("param @fc.weight", "param @fd.weight")), HasSubstr("no op uses the parameter 'fd.weight'"));
  EXPECT_THAT(ErrorOf(Replaced("@tied.weight, @head.bias", "@tied.weight")), HasSubstr("has 2 parameters and names 1"));
  EXPECT_THAT(ErrorOf(Replaced("loss, correct =", "loss, correct, lse, counted, more =")),
              HasSubstr("'cross_entropy' has 4 outputs, not 5"));
  EXPECT_THAT(ErrorOf(Replaced("scale(correct)", "scale(loss:wrong)")),
              HasSubstr("no output 'wrong' (it has loss, correct, lse, counted)"));
  EXPECT_THAT(ErrorOf(Replaced("return loss", "return fc")), StartsWith("model.dag:3:10: the loss 'fc' is f32[1, 256]"));
  EXPECT_THAT(ErrorOf(Replaced("return loss", "return loss return loss")), HasSubstr("a second 'return'"));
  EXPECT_THAT(ErrorOf(Replaced("shape=[b]", "shape=[c]")), HasSubstr("expected a value"));
  EXPECT_THAT(ErrorOf(Replaced("{out=256}", "{out=b}")), HasSubstr("found 'b'"));
  EXPECT_THAT(ErrorOf(Replaced("shape=[b]", "shape=[-2]")), HasSubstr("the micro-batch is written b"));
  EXPECT_THAT(ErrorOf(Replaced("relu(fc)", "relu_grad(fc, fc)")), HasSubstr("only differentiation makes"));
  EXPECT_THAT(ErrorOf(Replaced("normal(0.02)", "normal(-1)")), HasSubstr("negative width"));
  EXPECT_THAT(ErrorOf(Replaced("\"mlp\"", "\"mlp")), StartsWith("model.dag:1:7: a text that has no closing quote"));
  EXPECT_THAT(ErrorOf(absl::string_view(kMlp).substr(0, sizeof(kMlp) - 4)), HasSubstr("the text ends"));
  EXPECT_THAT(ErrorOf("graph \"g\" { x = neg(x) ! }"), HasSubstr("'!' means nothing here"));
  EXPECT_THAT(ErrorOf(""), StartsWith("model.dag:1:1: expected 'graph', the text ends"));
}

TEST(TextTest, ACycleIsRefusedWithItsOps) {
  const std::string text =
      "graph \"g\" {\n x = placeholder() {role=\"r\", dtype=\"f32\", shape=[b]}\n a = add(x, c)\n b = neg(a)\n c = neg(b)\n d = neg(c)\n}";
  EXPECT_THAT(ErrorOf(text), HasSubstr("ops read each other in a cycle: 'b' -> 'c' -> 'a'"));
  EXPECT_THAT(ErrorOf("graph \"g\" { a = neg(a) }"), HasSubstr("in a cycle: 'a'"));
}

TEST(TextTest, AByteOrderMarkAndCrLfAreReadAsNothingAndLf) {
  const absl::StatusOr<Graph> plain = ParseGraph(kMlp, "mlp.dag");
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const std::string& text :
       {absl::StrCat("\xEF\xBB\xBF", kMlp), absl::StrCat("\xEF\xBB\xBF", absl::StrReplaceAll(kMlp, {{"\n", "\r\n"}}))}) {
    const absl::StatusOr<Graph> graph = ParseGraph(text, "mlp.dag");
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(PrintGraph(*graph), PrintGraph(*plain));
  }
  EXPECT_THAT(ErrorOf(absl::StrCat(" \xEF\xBB\xBF", kMlp)), HasSubstr(":1:2: "));
}

TEST(TextTest, LimitsAreErrorsAndNotAllocations) {
  EXPECT_THAT(ErrorOf(absl::StrCat("graph \"", std::string(1000, 'x'), "\" {}")), HasSubstr("512 bytes"));
  std::string list;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&list, i, ", ");
  EXPECT_THAT(ErrorOf(absl::StrCat("graph \"g\" { x = placeholder() {shape=[", list, "1]} }")), HasSubstr("more than 64 entries"));
  EXPECT_THAT(ErrorOf(Replaced("{out=256}", "{out=9000000000000000000}")), HasSubstr("must be 1 to"));
  EXPECT_THAT(ErrorOf(Replaced("{out=256}", "{out=99999999999999999999}")), HasSubstr("expected a value"));
  EXPECT_THAT(ErrorOf(absl::StrReplaceAll(kMlp, {{"784", "2147483647"}, {"{out=256}", "{out=2147483647}"}})), HasSubstr("elements"));
}

// Everything a graph says, beside the layout of its tables.
void ExpectSame(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.ops().size(), b.ops().size());
  ASSERT_EQ(a.parameters().size(), b.parameters().size());
  EXPECT_EQ(a.name(), b.name());
  EXPECT_EQ(a.loss(), b.loss());
  for (size_t i = 0; i < a.ops().size(); ++i) {
    EXPECT_EQ(a.op(i).name, b.op(i).name);
    EXPECT_EQ(a.op(i).kind, b.op(i).kind);
    EXPECT_EQ(a.op(i).attributes, b.op(i).attributes);
    EXPECT_EQ(a.op(i).inputs, b.op(i).inputs);
    EXPECT_EQ(a.op(i).parameters, b.op(i).parameters);
  }
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_EQ(a.parameter(i).name, b.parameter(i).name);
    EXPECT_EQ(a.parameter(i).type, b.parameter(i).type);
    EXPECT_EQ(a.parameter(i).initializer, b.parameter(i).initializer);
    EXPECT_EQ(a.parameter(i).trainable, b.parameter(i).trainable);
  }
}

TEST(TextTest, PrintingAndParsingIsTheIdentity) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Graph graph = testing::RandomGraph({.seed = seed, .ops = static_cast<int>(seed % 40), .exotic = true});
    const std::string text = PrintGraph(graph);
    const absl::StatusOr<Graph> parsed = ParseGraph(text, "random.dag");
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
    ExpectSame(graph, *parsed);
    EXPECT_EQ(PrintGraph(*parsed), text);
  }
  const Graph gpt2 = *models::BuildGpt2({});
  const absl::StatusOr<Graph> parsed = ParseGraph(PrintGraph(gpt2), "gpt2.dag");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ExpectSame(gpt2, *parsed);
}

}  // namespace
}  // namespace fusionllm::opdag
