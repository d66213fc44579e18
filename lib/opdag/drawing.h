// Pictures of a graph: SVG with a layout of its own, and text for Graphviz.
//
// Rows are depths (an op stands below everything it reads, sources just above their first reader), so data flows downwards; edges that
// skip rows bow out to the right. Boxes show name, type and the first output's type, with the micro-batch
// as b; hovering shows everything else. Meant for up to a few hundred ops; larger graphs draw in linear time and get long.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

struct DrawingOptions {
  std::vector<int> stage_of_op;           // empty, or a stage for each op: boxes are coloured by stage, with a legend
  std::vector<std::string> stage_labels;  // texts of the legend, "stage 0" where absent
};

// A whole SVG 1.1 document, valid XML whatever the names hold.
std::string DrawSvg(const Graph& graph, const DrawingOptions& options = {});

// A digraph for Graphviz's dot; stages become clusters.
std::string DrawDot(const Graph& graph, const DrawingOptions& options = {});

}  // namespace fusionllm::opdag
