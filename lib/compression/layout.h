// What every implementation of the codecs agrees on: which layout a spec takes, how its payload is divided, and what is refused before or
// without looking at a number. Internal to lib/compression and lib/compression/cuda. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/header.h"
#include "lib/compression/spec.h"

namespace fusionllm::compression {

inline constexpr int kMinHalfExponent = -126;  // 2^e and 2^-e are normal floats between these
inline constexpr int kMaxHalfExponent = 106;   // 65504 · 2^106 stays below infinity; kMaxMagnitude needs no more

Layout DenseLayout(CodecKind kind);
// Of the values that a top-k or masked message carries.
Layout ValueLayout(ValueKind values);
size_t ScaleBytes(Layout layout, size_t n);    // kInt8 and kInt4
size_t PayloadBytes(Layout layout, size_t n);  // of n values, scales included
int32_t BlockSize(Layout layout);              // kInt8 and kInt4; 0 of others

// The e that puts the greatest magnitude into [2^14, 2^15) once multiplied by 2^-e.
int32_t HalfExponent(uint32_t greatest_magnitude);
// What the header's parameter is for n values in this layout.
int32_t ParameterOf(Layout layout, uint32_t greatest_magnitude);

// The selection that a message comes with, if any.
struct MaskSize {
  int64_t elements = 0;  // 0: dense, or none
  int64_t kept = 0;
};

// Whether such a tensor may be encoded: the spec, the size, and a mask exactly where the message needs one.
absl::Status CheckEncode(const CodecSpec& spec, Direction direction, size_t elements, MaskSize mask);

// A message taken apart. The spans are the encoded bytes'.
struct Message {
  Header header;
  Layout layout = Layout::kExact;   // of the values
  size_t count = 0;                 // of values
  std::span<const std::byte> mask;  // of a top-k message, unread
  std::span<const std::byte> values;
};

// Checks all but the numbers: the mask's bytes, and by CheckValues those of the values. Errors: InvalidArgument.
absl::StatusOr<Message> ReadMessage(Direction direction, std::span<const std::byte> encoded, size_t elements, MaskSize mask);

// That the parameter is one that a sender of this layout writes. Errors: InvalidArgument.
absl::Status CheckParameter(Layout layout, int32_t parameter);
absl::Status ValuesNotFiniteError();
// Whether no scale, half or bfloat is infinite, NaN or out of range, without decoding them.
bool ValuesAreFinite(const Message& message);

}  // namespace fusionllm::compression
