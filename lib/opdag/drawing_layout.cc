#include "lib/opdag/drawing_layout.h"

#include <algorithm>

namespace fusionllm::opdag::drawing {
namespace {

std::vector<int> Rows(const Graph& graph) {
  const auto& ops = graph.ops();
  std::vector<int> row(ops.size(), 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const ValueId input : ops[i].inputs) row[i] = std::max(row[i], row[graph.value(input).producer] + 1);
  }
  // Sources come down to their first reader: labels beside the head, not at the top.
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].inputs.empty()) continue;
    int first = -1;
    for (const ValueId output : ops[i].outputs) {
      for (const OpId reader : graph.value(output).consumers) first = first < 0 ? row[reader] : std::min(first, row[reader]);
    }
    if (first > 0) row[i] = first - 1;
  }
  return row;
}

// Mean column of the ops that feed an op; sources stand to the right of what is there.
double TargetColumn(const Graph& graph, const Op& op, const std::vector<double>& column, double fallback) {
  if (op.inputs.empty()) return fallback;
  double sum = 0;
  for (const ValueId input : op.inputs) sum += column[graph.value(input).producer];
  return sum / static_cast<double>(op.inputs.size());
}

}  // namespace

Layout ComputeLayout(const Graph& graph) {
  Layout layout;
  layout.row = Rows(graph);
  layout.column.assign(graph.ops().size(), 0);
  for (const int row : layout.row) layout.rows = std::max(layout.rows, row + 1);
  std::vector<std::vector<OpId>> in_row(layout.rows);
  for (OpId id = 0; id < static_cast<OpId>(graph.ops().size()); ++id) in_row[layout.row[id]].push_back(id);

  double leftmost = 0, rightmost = 0;
  for (std::vector<OpId>& row : in_row) {
    std::vector<std::pair<double, OpId>> targets;
    for (const OpId id : row) targets.emplace_back(TargetColumn(graph, graph.op(id), layout.column, row.size() > 1 ? 1e6 : 0), id);
    std::sort(targets.begin(), targets.end());
    // Boxes keep one width between them; the row as a whole is centred on what its ops ask for.
    double sum = 0;
    int placed = 0;
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i].first >= 1e6) continue;
      sum += targets[i].first - static_cast<double>(i);
      ++placed;
    }
    const double shift = placed > 0 ? sum / placed : 0;
    for (size_t i = 0; i < targets.size(); ++i) layout.column[targets[i].second] = static_cast<double>(i) + shift;
    leftmost = std::min(leftmost, shift);
    rightmost = std::max(rightmost, shift + static_cast<double>(targets.size() - 1));
  }
  for (double& column : layout.column) column += 0.5 - leftmost;
  layout.columns = rightmost - leftmost + 1;
  return layout;
}

}  // namespace fusionllm::opdag::drawing
