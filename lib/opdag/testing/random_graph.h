// Random well-formed graphs for property tests: the same seed gives the same graph.
#pragma once

#include <cstdint>

#include "lib/opdag/graph.h"

namespace fusionllm::opdag::testing {

struct RandomGraphOptions {
  uint64_t seed = 0;
  int ops = 20;         // how often an op (or a small group of ops) is drawn
  bool exotic = false;  // frozen and shared parameters, odd names, other starts: for the text form, not for finite differences
};

// Values stay of order one and away from kinks, so gradients can be checked by finite differences. One placeholder, "x" f32[b, 3, 4];
// every parameter reaches the loss. Untyped; fits every micro-batch.
Graph RandomGraph(const RandomGraphOptions& options);

}  // namespace fusionllm::opdag::testing
