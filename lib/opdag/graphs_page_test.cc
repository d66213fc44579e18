// docs/reference/operators.md against the registry, and docs/tasks/own-graph.md against the parser: no page falls behind the ops.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/opdag/op_schema.h"
#include "lib/opdag/text.h"

namespace fusionllm::opdag {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int64_t kMaxPage = 1 << 20;
constexpr char kOperatorsPage[] = "docs/reference/operators.md", kGraphPage[] = "docs/tasks/own-graph.md";

std::string Page(absl::string_view path) {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  absl::StatusOr<std::string> page = base::ReadSmallFile(absl::StrCat(root == nullptr ? "." : root, "/", path), kMaxPage);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.value_or("");
}

// What stands between the fences of a page.
std::vector<std::string> Fenced(const std::string& page) {
  std::vector<std::string> blocks;
  bool inside = false;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (absl::StartsWith(line, "```")) {
      inside = !inside;
      if (inside) blocks.emplace_back();
    } else if (inside) {
      absl::StrAppend(&blocks.back(), line, "\n");
    }
  }
  return blocks;
}

struct Row {
  std::string inputs, attributes, outputs;  // cells
};

// The rows of five cells that begin with an op type. An op type twice is a failure.
std::map<std::string, Row> Rows() {
  std::map<std::string, Row> rows;
  const std::string page = Page(kOperatorsPage);
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, " | ");
    if (!absl::StartsWith(line, "| `") || cells.size() != 5) continue;
    const std::string type(absl::StripSuffix(absl::StripPrefix(cells[0], "| `"), "`"));
    EXPECT_TRUE(rows.emplace(type, Row{cells[1], cells[2], cells[3]}).second) << type << " has two rows";
  }
  return rows;
}

std::string Code(absl::string_view name) { return absl::StrCat("`", name, "`"); }

std::string Words(const AttributeSchema& attribute) {
  const std::map<AttributeKind, std::string> kinds = {{AttributeKind::kInt, "integer"},
                                                      {AttributeKind::kNumber, "number"},
                                                      {AttributeKind::kBool, "true or false"},
                                                      {AttributeKind::kText, "text"},
                                                      {AttributeKind::kInts, "integers"}};
  return absl::StrCat(Code(attribute.name), " ", kinds.at(attribute.kind), attribute.required ? ", required" : ", default ");
}

TEST(GraphsPageTest, HasARowForEveryOpAndForNothingElse) {
  const std::map<std::string, Row> rows = Rows();
  std::set<std::string> on_page, registered;
  for (const auto& [type, row] : rows) on_page.insert(type);
  for (const OpSchema* schema : AllSchemas()) registered.insert(schema->name());
  EXPECT_EQ(on_page, registered);
}

TEST(GraphsPageTest, EveryRowNamesWhatTheOpHas) {
  const std::map<std::string, Row> rows = Rows();
  for (const OpSchema* schema : AllSchemas()) {
    SCOPED_TRACE(schema->name());
    const auto found = rows.find(schema->name());
    if (found == rows.end()) continue;  // the test above tells
    const Row& row = found->second;
    for (const std::string& input : schema->inputs) EXPECT_THAT(row.inputs, HasSubstr(Code(input)));
    for (size_t i = 0; i < schema->parameters.size(); ++i) {
      const bool optional = i + static_cast<size_t>(schema->optional_parameters) >= schema->parameters.size();
      EXPECT_THAT(row.inputs, HasSubstr(absl::StrCat(Code(schema->parameters[i]), optional ? "?" : "")));
    }
    for (const std::string& output : schema->outputs) EXPECT_THAT(row.outputs, HasSubstr(Code(output)));
    const std::vector<std::string> attributes = absl::StrSplit(row.attributes, "; ", absl::SkipWhitespace());
    ASSERT_THAT(attributes, SizeIs(schema->attributes.size())) << row.attributes;
    for (size_t i = 0; i < attributes.size(); ++i) EXPECT_THAT(attributes[i], StartsWith(Words(schema->attributes[i])));
  }
}

TEST(GraphsPageTest, ItsGraphIsOne) {
  int graphs = 0;
  for (const std::string& block : Fenced(Page(kGraphPage))) {
    const size_t begin = absl::StartsWith(block, "graph \"") ? 0 : block.find("\ngraph \"");
    if (begin == std::string::npos) continue;
    ++graphs;
    // To its closing brace: behind it the command that writes the file ends.
    const size_t end = block.find("\n}\n", begin);
    ASSERT_NE(end, std::string::npos) << block;
    absl::StatusOr<Graph> graph = ParseGraph(block.substr(begin, end + 2 - begin), kGraphPage);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(InferTypes(*graph, 2).ok());
    EXPECT_NE(graph->loss(), kNone);
  }
  EXPECT_EQ(graphs, 1);
}

// Where the hints for ops send their reader (op_hints.cc).
TEST(GraphsPageTest, HasTheSectionThatHintsName) { EXPECT_THAT(Page(kGraphPage), HasSubstr("\n## A Llama from these operators\n")); }

TEST(GraphsPageTest, TheExampleOfALlamaIsAWholeGraph) {
  absl::StatusOr<Graph> graph = ParseGraph(Page("examples/graphs/llama-block.dag"), "llama-block.dag");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(InferTypes(*graph, 2).ok());
  EXPECT_NE(graph->loss(), kNone);
}

// The parts of a Llama, put together to a model of one block.
TEST(GraphsPageTest, ItsPartsOfALlamaFitTogether) {
  constexpr char kBefore[] = R"(graph "llama" {
tokens = placeholder() {role="tokens", dtype="i32", shape=[b, 64]}
next = placeholder() {role="labels", dtype="i32", shape=[b, 64]}
x = embedding(tokens; @model.embed_tokens.weight) {vocab=256, dim=64}
sin0 = embedding(tokens; @rope.zero, @rope.sin) {vocab=256, dim=16, positions=64}
sin = reshape(sin0) {shape=[b, 64, 1, 16]}
k0 = linear(norm) {out=32, bias=false}
g = linear(norm) {out=128, bias=false}
)";
  constexpr char kAfter[] = R"(
q1 = reshape(rotated) {shape=[b, 64, 64]}
k1 = reshape(k2) {shape=[b, 64, 64]}
qkv = concat(q1, k1, k1) {axis=2}
attn = attention(qkv) {heads=4}
mlp = linear(silu) {out=64, bias=false}
sum = add(attn, mlp)
logits = linear(sum) {out=256, bias=false}
loss = cross_entropy(logits, next)
return loss
})";
  const std::vector<std::string> parts = Fenced(Page(kGraphPage));
  const auto fragment = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return absl::StartsWith(part, "zero = "); });
  ASSERT_NE(fragment, parts.end());
  absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat(kBefore, *fragment, kAfter), kGraphPage);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(InferTypes(*graph, 2).ok());
}

}  // namespace
}  // namespace fusionllm::opdag
