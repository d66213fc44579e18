// Graphs as users write them.
#include "absl/strings/match.h"
#include "lib/base/testing/fuzz.h"
#include "lib/opdag/accounting.h"
#include "lib/opdag/graph.h"
#include "lib/opdag/testing/random_graph.h"
#include "lib/opdag/text.h"

namespace fusionllm::opdag {
namespace {

std::vector<std::string> Seeds() {
  return {R"(graph "mlp" {
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
)",
          R"(graph "conv" {
  x = placeholder() {role="images", dtype="f32", shape=[b, 8, 8, 3]}
  c = conv2d(x) {out=4, kernel=[3, 3], stride=[2, 2], padding=[1, 1]}
  n = batch_norm(c) r = relu(n) p = max_pool2d(r) {kernel=[2, 2], stride=[2, 2]} g = global_avg_pool(p)
  h = linear(g) {out=4} y = placeholder() {role="labels", dtype="i32", shape=[b]} loss = cross_entropy(h, y) return loss
})",
          PrintGraph(testing::RandomGraph({.seed = 5, .ops = 12, .exotic = true})),
          PrintGraph(testing::RandomGraph({.seed = 9, .ops = 30, .exotic = true}))};
}

std::vector<std::string> Words() {
  return {"{",        "}",       "(",          ")",          "[b, -1]",   "@w",           "=",        ";",       "\"",
          "\\",       "#",       "b",          "axis=-1",    "shape=[0]", "sizes=[1, 2]", "begin=-9", "concat(", "split(",
          "reshape(", "matmul(", "attention(", "graph \"\"", "return "};
}

bool Accepts(absl::string_view input) {
  const absl::StatusOr<Graph> graph = ParseGraph(input, "m.dag");
  if (!graph.ok()) {
    FUZZ_CHECK(absl::StartsWith(graph.status().message(), "m.dag:"));
    return false;
  }
  FUZZ_CHECK(Verify(*graph).ok());
  const std::string text = PrintGraph(*graph);
  const absl::StatusOr<Graph> again = ParseGraph(text, "again.dag");
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(PrintGraph(*again) == text);
  Graph typed = *graph;
  if (InferTypes(typed, 3).ok()) {
    FUZZ_CHECK(Verify(typed).ok());
    FUZZ_CHECK(FootprintOf(typed).activation_bytes >= 0);
  }
  return true;
}

}  // namespace
}  // namespace fusionllm::opdag

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {opdag::Seeds, opdag::Words, opdag::Accepts}; }
