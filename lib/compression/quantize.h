// The arithmetic of the codecs: casts to 16 bits and block quantization, vectorised with run-time dispatch.
//
// Internal to lib/compression. Every function gives the same bits whatever the vector width: elementwise IEEE operations, rounding to
// nearest even, and maxima. Output pointers need no alignment. Nothing is checked here but what the return values tell.
//
// A "magnitude" is the bit pattern of |x| as an integer: ordered like |x| for finite numbers, infinity and NaN above all of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fusionllm::compression {

// Elements that share a scale; the probe's sizes (docs/design/codec-limits.md).
inline constexpr int32_t kInt8BlockSize = 64;
inline constexpr int32_t kInt4BlockSize = 32;

inline constexpr uint32_t kMaxMagnitudeBits = (127u + 120u) << 23;  // of kMaxMagnitude
inline constexpr uint16_t kMaxScaleBits = (127 + 120) << 7;         // the same as bfloat16: no valid scale is greater

// Greatest magnitude; 0 for n = 0.
uint32_t MaxMagnitude(const float* values, size_t n);
// First i whose magnitude exceeds kMaxMagnitudeBits; n if there is none.
size_t FindUnencodable(const float* values, size_t n);

inline constexpr int kMinHalfExponent = -126;  // 2^e and 2^-e are normal floats between these
inline constexpr int kMaxHalfExponent = 106;   // 65504 · 2^106 stays below infinity; kMaxMagnitude needs no more
// The e that puts the greatest magnitude into [2^14, 2^15) once multiplied by 2^-e.
int32_t HalfExponent(uint32_t max_magnitude);

// IEEE half floats of value * factor, which must lie within ±2^15.
void FloatToHalf(const float* values, size_t n, float factor, std::byte* out);
// half * factor. Returns false when a half is infinite or NaN.
bool HalfToFloat(const std::byte* halves, size_t n, float factor, float* out);

// bfloat16; returns the greatest magnitude of the input (the output means nothing when it exceeds kMaxMagnitudeBits).
uint32_t FloatToBfloat(const float* values, size_t n, std::byte* out);
// Returns false when a magnitude exceeds kMaxMagnitudeBits.
bool BfloatToFloat(const std::byte* bfloats, size_t n, float* out);

// Symmetric codes in [-127, 127], one scale for each block of 64 elements; the last block may be shorter. scales: bfloat16, 2 bytes for
// each block. A scale is max|x| / 127 rounded up, so that no code is clipped: bfloat16 has the range of a float, which small gradients need
// (an IEEE half would flush scales below 6e-8), and costs 0.4 % of the resolution. A block whose scale would be subnormal becomes zeros.
// Returns the greatest magnitude, as above.
uint32_t QuantizeInt8(const float* values, size_t n, std::byte* scales, std::byte* codes);
// Returns false when a scale is not in [0, kMaxMagnitude].
bool DequantizeInt8(const std::byte* scales, const std::byte* codes, size_t n, float* out);

// The same with codes in [-7, 7] and blocks of 32: byte j of a block's 16 holds element j in its low half and element j + 16 in its high
// half, both plus 8. The last block is filled up with zeros.
uint32_t QuantizeInt4(const float* values, size_t n, std::byte* scales, std::byte* codes);
bool DequantizeInt4(const std::byte* scales, const std::byte* codes, size_t n, float* out);

// Appends the index and the value of every element whose magnitude is at least threshold, in order, to indices and kept_values, which have
// room for capacity + kCompactSlack entries. Returns how many there are, or a number above capacity when they do not fit.
inline constexpr size_t kCompactSlack = 64;
size_t CompactAtLeast(const float* values, size_t n, uint32_t threshold, size_t capacity, uint32_t* indices, float* kept_values);

}  // namespace fusionllm::compression
