// docs/tasks/graphs.md against the registry: the page cannot fall behind the ops.
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

std::string Page() {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  absl::StatusOr<std::string> page = base::ReadSmallFile(absl::StrCat(root == nullptr ? "." : root, "/docs/tasks/graphs.md"), kMaxPage);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.value_or("");
}

struct Row {
  std::string inputs, attributes, outputs;  // cells
};

// The rows of five cells that begin with an op type. An op type twice is a failure.
std::map<std::string, Row> Rows() {
  std::map<std::string, Row> rows;
  for (const absl::string_view line : absl::StrSplit(Page(), '\n')) {
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
  for (const OpSchema* schema : AllSchemas()) registered.insert(schema->type);
  EXPECT_EQ(on_page, registered);
}

TEST(GraphsPageTest, EveryRowNamesWhatTheOpHas) {
  const std::map<std::string, Row> rows = Rows();
  for (const OpSchema* schema : AllSchemas()) {
    SCOPED_TRACE(schema->type);
    const auto found = rows.find(schema->type);
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
  const std::vector<std::string> parts = absl::StrSplit(Page(), "```\n");
  int graphs = 0;
  for (const std::string& part : parts) {
    if (!absl::StartsWith(part, "graph \"")) continue;
    ++graphs;
    absl::StatusOr<Graph> graph = ParseGraph(part, "docs/tasks/graphs.md");
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(InferTypes(*graph, 2).ok());
    EXPECT_NE(graph->loss(), kNone);
  }
  EXPECT_EQ(graphs, 1);
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
  const std::vector<std::string> parts = absl::StrSplit(Page(), "```\n");
  const auto fragment = std::find_if(parts.begin(), parts.end(), [](const auto& part) { return absl::StartsWith(part, "zero = "); });
  ASSERT_NE(fragment, parts.end());
  absl::StatusOr<Graph> graph = ParseGraph(absl::StrCat(kBefore, *fragment, kAfter), "docs/tasks/graphs.md");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(InferTypes(*graph, 2).ok());
}

}  // namespace
}  // namespace fusionllm::opdag
