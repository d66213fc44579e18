// What every implementation of the codecs agrees on: what is refused before or without looking at a number, and how a message is taken
// apart. Internal to lib/compression and lib/compression/cuda. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/header.h"
#include "lib/compression/registry.h"
#include "lib/compression/spec.h"

namespace fusionllm::compression {

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
  const DenseCodec* codec = nullptr;  // that the values are written in
  size_t count = 0;                   // of values
  std::span<const std::byte> mask;    // of a top-k message, unread
  std::span<const std::byte> values;
};

// Checks all but the parameter and the numbers: the mask's bytes, and by the codec those of the values. Errors: InvalidArgument.
absl::StatusOr<Message> ReadMessage(Direction direction, std::span<const std::byte> encoded, size_t elements, MaskSize mask);

}  // namespace fusionllm::compression
