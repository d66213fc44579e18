// What a lossy codec does to the loss, by what crosses the cut: which codec a kind of value may take at all, and what it is expected to
// cost.
//
// Pure functions; thread-safe. The rule is applied by whoever prices a link (policy.h) and by whoever encodes and decodes its messages
// (lib/runtime/edge_codec.h), so both make the same bytes whatever plan arrives.
#pragma once

#include "lib/compression/spec.h"
#include "lib/opdag/activation_kind.h"

namespace fusionllm::compression {

// The codec that a tensor of this kind travels in where its link has `spec`: `spec`, or fp16 for a loss input that it would quantise to
// fewer bits or sparsify (int8 logits cost 0.09 nats after 60 steps, top-k 25 of them 1.5; docs/compression.md), or fp32 for data. A
// gradient follows its forward value.
CodecSpec AllowedCodec(const CodecSpec& spec, opdag::ActivationKind kind);

// Increase of the training loss that this project's probe measured with the codec at one cut in the middle of a byte-level GPT (6 layers,
// 600 steps, uncompressed 2.681): fp16, bf16 and int8 0, int4 with int8 gradient 0.008, top-k masked by the forward's choice by ratio:
// 3 0.042, 5 0.048, 10 0.082, 30 0.148, 100 0.479; in between linear in log(ratio), beyond 100 by the last slope. Small and early-phase:
// trust the order more than the figures. Increases of several cuts add up.
double ExpectedLossIncrease(const CodecSpec& spec);

}  // namespace fusionllm::compression
