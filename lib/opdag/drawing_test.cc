#include "lib/opdag/drawing.h"

#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/resnet/graph.h"
#include "lib/opdag/accounting.h"
#include "lib/opdag/drawing_layout.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::opdag {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Tags balance, attributes are quoted, text holds no bare markup: what an XML parser would refuse first. Returns the first fault.
std::string XmlFault(absl::string_view text) {
  std::vector<std::string> open;
  size_t at = 0;
  while ((at = text.find_first_of("<&", at)) != absl::string_view::npos) {
    if (text[at] == '&') {
      const size_t end = text.find(';', at);
      const absl::string_view name = text.substr(at, end - at);
      if (name != "&lt" && name != "&gt" && name != "&amp" && name != "&quot") return absl::StrCat("entity ", name);
      at = end;
      continue;
    }
    const size_t end = text.find('>', at);
    if (end == absl::string_view::npos) return "an open tag at the end";
    const absl::string_view tag = text.substr(at + 1, end - at - 1);
    at = end;
    if (tag.find('<') != absl::string_view::npos || std::count(tag.begin(), tag.end(), '"') % 2 != 0) return std::string(tag);
    if (tag[0] == '?') continue;
    const std::string name(tag.substr(0, tag.find_first_of(" /", 1)));
    if (tag[0] == '/') {
      if (open.empty() || absl::StrCat("/", open.back()) != std::string(tag)) return absl::StrCat("unbalanced ", tag);
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : absl::StrCat("unclosed ", open.back());
}

Graph SmallGpt2() {
  Graph graph = *models::BuildGpt2({.layers = 3, .heads = 2, .embd = 8, .vocab = 11, .positions = 6, .sequence = 4});
  EXPECT_TRUE(InferTypes(graph, 2).ok());
  return graph;
}

std::vector<int> Stages(const Graph& graph, int ops_each) {
  std::vector<int> stages;
  for (size_t i = 0; i < graph.ops().size(); ++i) stages.push_back(static_cast<int>(i) / ops_each);
  return stages;
}

TEST(DrawingTest, SvgIsXmlWithABoxForEachOpAndALegendForEachStage) {
  const Graph graph = SmallGpt2();
  const std::string svg = DrawSvg(graph, {.stage_of_op = Stages(graph, 10), .stage_labels = {"paris-0"}});
  EXPECT_EQ(XmlFault(svg), "");
  for (const Op& op : graph.ops()) EXPECT_THAT(svg, HasSubstr(absl::StrCat(">", op.name, "</text>")));
  EXPECT_THAT(svg, HasSubstr(">paris-0</text>"));
  EXPECT_THAT(svg, HasSubstr(">stage 1</text>"));
  EXPECT_THAT(svg, HasSubstr("f32[b, 4, 8]"));
  EXPECT_THAT(svg, HasSubstr("parameters"));
}

// Whatever micro-batch it was typed for: 1 among them, which could not be distinguished from an extent of the model.
TEST(DrawingTest, TheMicroBatchDimensionIsDrawnAsB) {
  GraphBuilder builder("g");
  const ValueId x = builder.Placeholder("x", "images", "f32", {kBatch, 1, 6});
  builder.Add("flat", "reshape", {x}, {{"shape", std::vector<int64_t>{-1}}});
  Graph graph = *builder.Finish(kNone);
  ASSERT_TRUE(InferTypes(graph, 1).ok());
  const std::string svg = DrawSvg(graph);
  EXPECT_THAT(svg, HasSubstr("f32[b, 1, 6]"));
  EXPECT_THAT(svg, HasSubstr("f32[6b]"));
  EXPECT_THAT(svg, HasSubstr("micro-batch of 1; b: micro-batch"));
  EXPECT_THAT(DrawDot(graph), HasSubstr("f32[b, 1, 6]"));
}

TEST(DrawingTest, HostileNamesStayText) {
  GraphBuilder builder("a <b> & \"c\"");
  const ValueId x = builder.Placeholder("<script>\"&'\n\xff", "images", "f32", {kBatch, 2});
  builder.Add("y]]>\\", "relu", {x});
  const Graph graph = *builder.Finish(kNone);
  const std::string svg = DrawSvg(graph);
  EXPECT_EQ(XmlFault(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(DrawDot(graph), HasSubstr("y]]>\\\\"));
}

TEST(DrawingTest, TheCheckerSeesBrokenXml) {
  EXPECT_NE(XmlFault("<a><b></a></b>"), "");
  EXPECT_NE(XmlFault("<a>"), "");
  EXPECT_NE(XmlFault("<a>&foo;</a>"), "");
}

TEST(DrawingTest, BoxesOfARowDoNotOverlapAndDataFlowsDown) {
  Graph graph = *models::BuildResNet({.depth = 50, .stem = "cifar", .num_classes = 10, .image_size = 32});
  const drawing::Layout layout = drawing::ComputeLayout(graph);
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    for (const ValueId input : graph.op(i).inputs) EXPECT_GT(layout.row[i], layout.row[graph.value(input).producer]);
    EXPECT_GE(layout.column[i], 0.5);
    EXPECT_LE(layout.column[i], layout.columns - 0.5 + 1e-9);
    for (size_t j = 0; j < i; ++j) {
      if (layout.row[i] == layout.row[j]) {
        EXPECT_GE(std::abs(layout.column[i] - layout.column[j]), 1 - 1e-9);
      }
    }
  }
}

TEST(DrawingTest, DotNamesEveryOpAndEdge) {
  const Graph graph = SmallGpt2();
  const std::string dot = DrawDot(graph, {.stage_of_op = Stages(graph, 10)});
  size_t edges = 0;
  for (const Op& op : graph.ops()) edges += op.inputs.size();
  EXPECT_EQ(std::vector<std::string>(absl::StrSplit(dot, " -> ")).size(), edges + 1);
  EXPECT_THAT(dot, HasSubstr("subgraph cluster_3"));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
}

TEST(AccountingTest, CountsSharedParametersOnceInTotalAndInEachOp) {
  Graph graph = SmallGpt2();
  const Footprint total = FootprintOf(graph);
  const std::vector<Footprint> ops = FootprintOfOps(graph);
  int64_t sum = 0;
  double flops = 0;
  for (const Footprint& weight : ops) {
    sum += weight.parameters;
    flops += weight.flops;
  }
  EXPECT_EQ(sum, total.parameters + 11 * 8) << "the tied table stands in embed and lm_head";
  EXPECT_EQ(flops, total.flops);
  EXPECT_EQ(ops[graph.FindOp("lm_head")].flops, 2.0 * 2 * 4 * 8 * 11);
  EXPECT_EQ(ops[graph.FindOp("block.0.mlp.gelu")].activation_bytes, 4 * 2 * 4 * 32);
  EXPECT_EQ(total.parameter_bytes, 4 * total.parameters);
}

TEST(AccountingTest, PrintsCountsForPeople) {
  EXPECT_EQ(FormatCount(768), "768");
  EXPECT_EQ(FormatCount(124'439'808), "124.4 M");
  EXPECT_EQ(FormatCount(1.5e9), "1.5 G");
  EXPECT_EQ(FormatCount(999'960), "1.0 M");
}

}  // namespace
}  // namespace fusionllm::opdag
