// Random well-formed graphs for property tests: the same seed gives the same graph.
#pragma once

#include <cstdint>

#include "lib/opdag/graph.h"

namespace fusionllm::opdag::testing {

struct RandomGraphOptions {
  uint64_t seed = 0;
  int ops = 20;         // how often an op (or a small group of ops) is drawn
  bool exotic = false;  // frozen and shared parameters, odd names, other starts: for the text form, not for finite differences
  // Convolutions, pools, batch norm, attention, embeddings (a second placeholder, "tokens" i32[b, 3], ids below kRandomGraphVocabulary),
  // dropout, ReLU and maxima, and parameters that ops share: for finite differences by a caller that minds kinks.
  bool layers = false;
};

constexpr int64_t kRandomGraphVocabulary = 5;

// Values stay of order one and, without `layers`, away from kinks, so gradients can be checked by finite differences. A placeholder, "x"
// f32[b, 3, 4]; every parameter reaches the loss. Untyped; fits every micro-batch.
Graph RandomGraph(const RandomGraphOptions& options);

}  // namespace fusionllm::opdag::testing
