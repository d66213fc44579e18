// What every TensorCodec must do as compression::Encode and Decode do it: the same bytes, numbers, residuals and errors. For tests;
// failures are reported to gtest, and tensors are followed by sentinels that must not be overwritten.
#pragma once

#include "lib/compression/tensor_codec.h"

namespace fusionllm::compression::testing {

// Messages of both directions and what they decode to, for every codec, many sizes, and values with ties, zeros, denormals and wide ranges.
void ExpectSameMessages(TensorCodec& codec);
// Several selections under way at once; each gradient meets its own.
void ExpectSelectionsKeptApart(TensorCodec& codec);
// Error feedback over several messages, with an error between them, and its way through a checkpoint.
void ExpectSameResiduals(TensorCodec& codec);
// Values that cannot be encoded, and masks that are missing, superfluous or of another size.
void ExpectSameErrors(TensorCodec& codec);
// Messages, and gradients under masks, with damage in every byte: refused in the same words, or decoded to the same numbers.
void ExpectSameHandlingOfCorruption(TensorCodec& codec);
// bf16 tensors of every bit pattern and many sizes: their messages, damage to them, and the way through floats and back.
void ExpectSameBf16(TensorCodec& codec);
// Messages that are started one after the other, whose tensors change meanwhile, and that another thread finishes in the opposite order.
void ExpectMessagesUnderWayKeptApart(TensorCodec& codec);
// Integers, and the comparison of a message with its original.
void ExpectSameIntegersAndComparisons(TensorCodec& codec);

}  // namespace fusionllm::compression::testing
