// What a codec may lose of a tensor before training pays for it, and what to send instead.
//
// A run cannot see what it would have learnt without compression, but it can see how far a decoded tensor is from its original, from the
// first message on. What that distance costs depends on what the tensor is to the model: of logits hardly any may be lost, of a residual
// stream before training three quarters (docs/compression.md has the figures). Pure functions, thread-safe.
#pragma once

#include <vector>

#include "lib/compression/guard_mode.h"
#include "lib/compression/spec.h"
#include "lib/opdag/activation_kind.h"

namespace fusionllm::compression {

// The greatest relative error (CompressionError) of one message whose codec costs less than 0.15 nats in 300 steps, at any cut that was
// tried. Of a gradient under a top-k mask it is the error of the values kept.
//
// Before training activations are nearly normal, and the error tells the ratio whatever the cut: top-k 5 loses 0.59, 10 0.75, 30 0.89, 100
// 0.96. Later it falls, at one cut to what a harmless ratio loses at another; so it is the first messages that count.
double MaxRelativeError(opdag::ActivationKind kind, Direction direction);

// What a sender whose message lost too much tries next, the smallest message first, an exact one last: top-k of half the ratio and so on
// down to 4, int4, int8, fp16, fp32. A gradient under a mask keeps that; its values become fp16. Empty where nothing is gentler.
std::vector<CodecSpec> GentlerCodecs(const CodecSpec& spec, Direction direction);
// A codec tried there must stay this far below the limit, or the next message may be over it again.
inline constexpr double kBackoffMargin = 0.9;

// Whichever loses less: by the order fp32, fp16 and bf16, int8, int4, top-k by ratio. Error feedback is a's.
CodecSpec GentlerOf(const CodecSpec& a, const CodecSpec& b);

// What a run whose loss rises or is no number goes back to. The loss says nothing of how much is too much, and a second step down costs
// another forty steps: top-k and int4 become int8, int8 fp16, the rest fp32.
CodecSpec AfterBadLoss(const CodecSpec& spec);

}  // namespace fusionllm::compression
