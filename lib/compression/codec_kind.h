// The numbers of codecs, in memory and on the wire. What a codec is, its object tells (registry.h).
#pragma once

#include <cstdint>

namespace fusionllm::compression {

// In the order of what they lose, which is that of the compression levels of a policy.
enum class CodecKind : uint8_t { kExact, kFp16, kBf16, kInt8, kInt4, kTopK };
// How the values that a top-k selection kept are written; on the wire too (header.h), so no number changes. The gradient of int4 values
// travels as int8.
enum class ValueKind : uint8_t { kFp16, kInt8, kInt4 };
// Byte 1 of a message (header.h), so no number changes. kBf16: of an fp32 tensor, rounded; kNativeBf16: of a bf16 tensor, as they are.
enum class Layout : uint8_t { kExact, kFp16, kBf16, kInt8, kInt4, kTopK, kMasked, kIntegers, kNativeBf16 };

}  // namespace fusionllm::compression
