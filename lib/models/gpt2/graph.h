// GPT-2 as published: pre-norm blocks, learned positions, GELU by the tanh approximation, layer-norm epsilon 1e-5.
//
// Parameters have the names, shapes and layout of Hugging Face's GPT2LMHeadModel. Initialisation: N(0, 0.02), residual projections
// (attn.c_proj, mlp.c_proj) N(0, 0.02 / sqrt(2 layers)), biases zero, layer norms one and zero. Placeholders: "tokens" (role tokens) and
// "targets" (role labels), i32[b, sequence]; loss op "loss".
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "lib/opdag/graph.h"

namespace fusionllm::models {

struct GptOptions {
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t embd = 768;
  int64_t vocab = 50257;
  int64_t positions = 1024;
  int64_t sequence = 1024;  // tokens of a sample, at most positions
  bool tied = true;         // the head is transformer.wte.weight; otherwise lm_head.weight [vocab, embd]
};

// Errors: InvalidArgument for sizes that are not positive, absurd or do not fit each other.
absl::StatusOr<opdag::Graph> BuildGpt2(const GptOptions& options);

}  // namespace fusionllm::models
