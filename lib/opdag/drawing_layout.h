// Where each op stands in a drawing. Private to lib/opdag.
#pragma once

#include <vector>

#include "lib/opdag/graph.h"

namespace fusionllm::opdag::drawing {

struct Layout {
  std::vector<int> row;        // by op: depth from the top
  std::vector<double> column;  // by op: centre, in box widths from the left, at least 0.5
  int rows = 0;
  double columns = 0;
};

Layout ComputeLayout(const Graph& graph);

}  // namespace fusionllm::opdag::drawing
