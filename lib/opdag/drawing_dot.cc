#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/opdag/batch_types.h"
#include "lib/opdag/drawing.h"

namespace fusionllm::opdag {
namespace {

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", " "}}), "\"");
}

std::string Node(const Graph& graph, OpId id, const std::string& type) {
  const Op& op = graph.op(id);
  std::string label = absl::StrCat(op.name, "\n", opdag::Name(op.kind));
  if (!type.empty()) absl::StrAppend(&label, " ", type);
  // Only our own line break may reach dot as one.
  const std::string quoted = absl::StrReplaceAll(Quoted(absl::StrReplaceAll(label, {{"\n", "\x01"}})), {{"\x01", "\\n"}});
  return absl::StrCat("  n", id, " [label=", quoted, op.parameters.empty() ? "" : ", style=filled, fillcolor=\"#dfe9f8\"", "];\n");
}

}  // namespace

std::string DrawDot(const Graph& graph, const DrawingOptions& options) {
  std::string text = absl::StrCat("digraph ", Quoted(graph.name()), " {\n  node [shape=box, fontname=\"Helvetica\", fontsize=10];\n");
  const auto ops = static_cast<OpId>(graph.ops().size());
  const bool clustered = options.stage_of_op.size() == graph.ops().size();
  const int stages = clustered && ops > 0 ? *std::max_element(options.stage_of_op.begin(), options.stage_of_op.end()) + 1 : 0;
  std::vector<std::string> nodes(std::max(stages, 1));
  const std::vector<std::string> types = TypesByBatch(graph);
  for (OpId id = 0; id < ops; ++id)
    nodes[stages > 0 ? std::max(options.stage_of_op[id], 0) : 0] += Node(graph, id, types[graph.op(id).outputs[0]]);
  for (int stage = 0; stage < static_cast<int>(nodes.size()); ++stage) {
    const bool labelled = stage < static_cast<int>(options.stage_labels.size());
    const std::string label = labelled ? options.stage_labels[stage] : absl::StrCat("stage ", stage);
    absl::StrAppend(&text, stages > 0 ? absl::StrCat("  subgraph cluster_", stage, " {\n  label=", Quoted(label), ";\n") : "", nodes[stage],
                    stages > 0 ? "  }\n" : "");
  }
  for (OpId id = 0; id < ops; ++id) {
    for (const ValueId input : graph.op(id).inputs) absl::StrAppend(&text, "  n", graph.value(input).producer, " -> n", id, ";\n");
  }
  return text + "}\n";
}

}  // namespace fusionllm::opdag
