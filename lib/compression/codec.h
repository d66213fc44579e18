// Turns the float tensor of a cut edge into a message and back.
//
// The backward message of a top-k edge carries the gradient of exactly what the forward message carried: the values under the forward's
// mask, no indices. A second selection would not be the gradient of the trained function and ruins training (docs/design/codec-limits.md).
// So both ends keep the mask of a micro-batch from its forward message until its backward message:
//
//   stage A                                              stage B
//   Encode(spec, kForward, x, nullptr, &state, &m, &s)   Decode(kForward, m, nullptr, x', &s)
//   Decode(kBackward, m, &s, dx, nullptr)                Encode(spec, kBackward, dx', &s, nullptr, &m, nullptr)
//
// Losses: fp32 none, bit by bit, NaN included. fp16: IEEE halves of x·2^-e, where e, one for each message, puts the greatest value below
// 2^15: 11 bits for all values within 2^-28 of the greatest, no overflow, and small gradients survive. bf16: 8 bits, rounded to nearest
// even. int8, int4: |error| <= 0.504·max|x|/127 in each block of 64, 0.504·max|x|/7 in each block of 32. Top-k: the k of greatest
// magnitude, ties to the lower index, written as fp16, int8, int4. All but fp32 refuse NaN, infinities and magnitudes above 2^120
// (InvalidArgument names the index).
//
// Messages are little-endian and describe themselves; a decoder trusts nothing in them. Pure functions but for the state passed in: no
// locks, no blocking; different states may be used on different threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/mask.h"
#include "lib/compression/select.h"
#include "lib/compression/spec.h"

namespace fusionllm::compression {

// What one sender keeps for one edge and direction between its messages. Owned by the caller, one caller at a time.
struct EncoderState {
  // Error feedback: input minus what the receiver got, of the last forward message. Empty until the first. Belongs to the checkpoint.
  std::vector<float> residual;
  SelectionScratch selection;    // the warm threshold and buffers; need not be saved, results do not depend on it
  std::vector<float> corrected;  // buffer: input plus residual
};

// Writes the message to *out, whose old contents go but whose capacity is used again; out->size() is then what the link carries, and equals
// EncodedBytes(spec, values.size(), direction).
//
// mask: the forward's, for the backward direction of a top-k spec; null or dense otherwise. mask_out, if not null, receives the selection
// of a forward top-k message, or a dense mask. state may be null unless spec.error_feedback (forward).
//
// Errors: InvalidArgument for an invalid spec, more than kMaxElements, a value the codec refuses, a mask that is missing, superfluous or of
// another size. On an error *out and *mask_out are unspecified and the residual is unchanged.
absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Mask* mask, EncoderState* state,
                    std::vector<std::byte>* out, Mask* mask_out);

// Fills `out`, whose size is the number of elements expected. A backward message is decoded with the forward's mask if there was one, and
// must then be a masked one. mask_out as in Encode. Elements that were not kept become 0.
//
// Errors: InvalidArgument for whatever is wrong with the message: another version, direction or size, lengths that do not match, indices
// out of order or range, scales or values that are not finite. *out is then unspecified. Memory allocated stays below
// encoded.size() + 4·out.size() / 65536 bytes for a mask, plus 4 bytes for each kept value.
absl::Status Decode(Direction direction, std::span<const std::byte> encoded, const Mask* mask, std::span<float> out, Mask* mask_out);

// What a message was made with, by its header, which is all that is checked. Of a top-k or masked one the ratio is elements / kept.
struct MessageFormat {
  CodecSpec spec;
  bool bfloats = false;  // of a bf16 tensor, as it is: EncodeBf16
};
absl::StatusOr<MessageFormat> MessageFormatOf(Direction direction, std::span<const std::byte> message, size_t elements);

// Labels and token ids, without loss: one base for the message and 1, 2 or 4 bytes for each difference to it, whichever suffices.
absl::Status EncodeIntegers(std::span<const int32_t> values, std::vector<std::byte>* out);
absl::Status DecodeIntegers(std::span<const std::byte> encoded, std::span<int32_t> out);

// A bf16 tensor as it is, NaN included: 2 bytes for each value. Lossy codecs take its values as floats.
absl::Status EncodeBf16(Direction direction, std::span<const uint16_t> values, std::vector<std::byte>* out);
absl::Status DecodeBf16(Direction direction, std::span<const std::byte> encoded, std::span<uint16_t> out);

}  // namespace fusionllm::compression
