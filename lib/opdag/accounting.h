// What a graph weighs: parameters, FLOPs of one forward pass, bytes of activations.
//
// FLOPs follow the schemas' rules: a multiply-add counts two, a causal mask halves attention, elementwise ops count nominally (one for an
// arithmetic operation, eight for a transcendental function). Activations are the outputs of all ops but constants, each once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/opdag/graph.h"

namespace fusionllm::opdag {

struct Footprint {
  int64_t parameters = 0;       // trainable elements
  int64_t state_elements = 0;   // elements that are not trainable: running statistics, frozen parameters
  int64_t parameter_bytes = 0;  // both together
  double flops = 0;             // needs inferred types, as do the bytes of activations
  int64_t activation_bytes = 0;
};

// By op id; a shared parameter counts in each op that uses it.
std::vector<Footprint> FootprintOfOps(const Graph& graph);
// A shared parameter counts once, one that no op uses as well.
Footprint FootprintOf(const Graph& graph);

// "124.4 M", "1.5 G", "768": decimal, for drawings and tables.
std::string FormatCount(double count);

}  // namespace fusionllm::opdag
