// Family gpt2: the fields it has in jobs, and the object (lib/models/family.h). graph.h has the network.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/models/family.h"

namespace fusionllm::models {

struct Gpt2Settings {
  std::optional<int64_t> n_layer, n_head, n_embd, vocab_size, block_size;
  std::optional<bool> tie_weights;
  bool operator==(const Gpt2Settings&) const = default;
};

inline constexpr int64_t kMaxGptLayers = 10'000, kMaxGptWidth = 1 << 20, kMaxVocabulary = 1 << 24, kMaxPositions = 1 << 20;

template <class V>
void Visit(V& v, Gpt2Settings& s) {
  v.Field("nLayer", s.n_layer, {.min = 1, .max = kMaxGptLayers}, "Number of transformer blocks of family gpt2.");
  v.Field("nHead", s.n_head, {.min = 1, .max = kMaxGptLayers}, "Number of attention heads in a block of family gpt2; divides nEmbd.");
  v.Field("nEmbd", s.n_embd, {.min = 1, .max = kMaxGptWidth}, "Width of the residual stream of family gpt2, in elements.");
  v.Field("vocabSize", s.vocab_size, {.min = 2, .max = kMaxVocabulary}, "gpt2: rows of the token embedding; at least 256 for text.");
  v.Field("blockSize", s.block_size, {.min = 1, .max = kMaxPositions},
          "gpt2: positions, at least sequenceLength. Omitted: those of init.from where it says them, else sequenceLength, whatever the "
          "preset.");
  v.Field("tieWeights", s.tie_weights, {}, "gpt2: the output projection is the token embedding. Omitted: true.");
}

// Sizes of the presets: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2; tiny is ours.
const Family& Gpt2Family();

}  // namespace fusionllm::models
