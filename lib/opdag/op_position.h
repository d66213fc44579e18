// Where an op stands in the text of a graph, for what is found wrong with it long after the text was read. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::opdag {

// Line and column of the op's name: "4:3". Empty: no such op, or no text of a graph.
std::string PositionOfOp(absl::string_view text, absl::string_view op);

}  // namespace fusionllm::opdag
