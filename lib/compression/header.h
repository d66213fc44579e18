// The 16 bytes in front of every message. Internal to lib/compression.
//
//   offset 0  u8   version (1)
//          1  u8   layout (codec_kind.h)
//          2  u8   direction: 0 forward, 1 backward
//          3  u8   ValueKind of a top-k or masked message: 0 fp16, 1 int8, 2 int4; bytes for each value of an integer message; otherwise 0
//          4  u32  elements of the dense tensor
//          8  u32  kept elements, top-k and masked; otherwise 0
//         12  i32  fp16 values: e, each is half · 2^e; int8, int4 values: the block size; integers: the base; otherwise 0
// The payload follows and fills the message: the mask (top-k only), then the values; quantized values as all scales, then all codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/codec_kind.h"
#include "lib/compression/spec.h"

namespace fusionllm::compression {

inline constexpr uint8_t kFormatVersion = 1;

struct Header {
  Layout layout = Layout::kExact;
  Direction direction = Direction::kForward;
  uint8_t values = 0;
  uint32_t elements = 0;
  uint32_t kept = 0;
  int32_t parameter = 0;
};

void WriteHeader(const Header& header, std::byte* out);  // kHeaderBytes

// Reads the header and checks what can be checked without the payload: version, layout, direction, size, and that fields without a meaning
// are zero.
absl::StatusOr<Header> ReadHeader(std::span<const std::byte> message, Direction direction, size_t expected_elements);

}  // namespace fusionllm::compression
