// bfloat16: the upper half of a binary32, with its range and 8 bits of precision. The one definition of how numbers become bf16 and back;
// vectorised forms elsewhere give the same bits.
//
// Pure functions; thread-safe.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace fusionllm::tensor {

// Exact.
inline float UpcastBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// To nearest, ties to even; what is too large becomes infinite. A NaN stays one, made quiet.
inline uint16_t RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}

// `to` has as many elements as `from` and shares no memory with it.
void UpcastBf16(std::span<const uint16_t> from, float* to);
void RoundToBf16(std::span<const float> from, uint16_t* to);

}  // namespace fusionllm::tensor
