// What a codec may lose of a tensor before training pays for it, and what to send instead.
//
// A run cannot see what it would have learnt without compression, but it can see how far a decoded tensor is from its original, from the
// first message on. What that distance costs depends on what the tensor is to the model, and on how many others lose something as well: of
// logits hardly any may be lost, of a residual stream before training half (docs/design/codec-limits.md has the figures). Pure functions,
// thread-safe.
#pragma once

#include <span>
#include <vector>

#include "lib/compression/guard_mode.h"
#include "lib/compression/spec.h"
#include "lib/opdag/activation_kind.h"

namespace fusionllm::compression {

// What the codecs of all links together may be expected to cost before senders leave them, in nats per target after 300 steps, where a job
// allows its plans no more by spec.compression.maxLossIncrease: two thirds of the 0.15 that no guarded run may lose, as single runs differ.
inline constexpr double kGuardLossBudget = 0.1;

// The greatest relative error (CompressionError) of one message in `codec` of a link that may cost `nats`: that of the most aggressive
// codec which the prior (loss_prior.h) expects to cost no more for this kind of value, int8 at least. Of top-k the kept values of that
// codec are `codec`'s: int4 ones cost more than the same error by a higher ratio does, but for inner residuals. Of a gradient under a top-k
// mask it is the error of the values kept.
//
// Before training activations are nearly normal, and the error of top-k tells the ratio whatever the cut: 5 loses 0.59, 10 0.75, 30 0.89,
// 100 0.96; of what a ReLU left, twice that ratio does. Later it falls, at one cut to what a harmless ratio loses at another; so it is the
// first messages that count.
double MaxRelativeError(const CodecSpec& codec, opdag::ActivationKind kind, Direction direction, double nats = kGuardLossBudget);

// What of `nats` each link may cost, by what its codec is expected to cost. Where that is more than `nats` together: in proportion, so that
// the costs of several cuts do not add up to more. Else what is expected of it and all that is left.
std::vector<double> SplitLossBudget(double nats, std::span<const double> expected);

// What a sender whose message lost too much tries next, the smallest message first, an exact one last: top-k of half the ratio and so on
// down to 4 (2 with int4 values), int4, int8, fp16, fp32. A gradient under a mask keeps that; its values become fp16. Empty where nothing
// is less aggressive.
std::vector<CodecSpec> LessAggressiveCodecs(const CodecSpec& spec, Direction direction);
// A codec tried there must stay this far below the limit, or the next message may be over it again.
inline constexpr double kBackoffMargin = 0.9;

// Whichever loses less: by the order fp32, fp16 and bf16, int8, int4, top-k by ratio. Error feedback is a's.
CodecSpec LessAggressiveOf(const CodecSpec& a, const CodecSpec& b);

// What a run whose loss rises or is NaN or infinite goes back to. The loss says nothing of how much is too much, and a second step down
// costs another forty steps: top-k and int4 become int8, int8 fp16, the rest fp32.
CodecSpec CodecAfterDivergence(const CodecSpec& spec);

}  // namespace fusionllm::compression
