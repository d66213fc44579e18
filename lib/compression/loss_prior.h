// What a lossy codec does to the loss, by what crosses the cut: which codec a kind of value may take at all, and what it is expected to
// cost.
//
// Pure functions; thread-safe. The rule is applied by what prices a link (policy.h) and by what encodes and decodes its messages
// (lib/runtime/edge_codec.h), so both make the same bytes whatever plan arrives.
#pragma once

#include <cstdint>

#include "lib/compression/spec.h"
#include "lib/opdag/activation_kind.h"

namespace fusionllm::compression {

// The codec that a tensor of this kind travels in where its link has `spec`: `spec`, or fp16 for a loss input that it would quantise to
// fewer bits or sparsify (int8 logits cost 0.09 nats after 60 steps, top-k 25 of them 1.5; docs/concepts/compression.md), or fp32 for data.
// A gradient follows its forward value.
CodecSpec AllowedCodec(const CodecSpec& spec, opdag::ActivationKind kind);

// Nats per target that training loses to one cut whose values of this kind, and their gradients, travel so, after `steps` of training; 0:
// the most of any length. The most that small models of four families lost, of inner residuals the mean of seeds
// (docs/results/loss-cost.md): a quantizer by kind, top-k by kind and ratio (and length, but for streams), linear in log(ratio) in between,
// beyond the last ratio by the last slope. Cuts add up.
double ExpectedLossIncrease(const CodecSpec& spec, opdag::ActivationKind kind, int64_t steps);

}  // namespace fusionllm::compression
