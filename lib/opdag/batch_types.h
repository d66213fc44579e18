// Types of a graph's values with the micro-batch as a variable, for people: the size that a graph was typed for is one of many.
#pragma once

#include <string>
#include <vector>

#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

// By value: "f32[b, 64]", and "f32[64b]" where an extent holds the micro-batch and others. Empty texts before InferTypes. Types everything
// once more, for twice the micro-batch; where that fails all extents are numbers.
std::vector<std::string> TypesByBatch(const Graph& graph);

}  // namespace fusionllm::opdag
