#include "lib/compression/quantize.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/compression/quantize.cc"
#include "hwy/foreach_target.h"
// foreach_target.h compiles this file once for each instruction set; it must come before highway.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fusionllm::compression::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that blocks of 32 and 64 hold whole vectors on every target.
using F32 = hn::CappedTag<float, 16>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using F16 = hn::Rebind<hwy::float16_t, F32>;
using I8 = hn::Rebind<int8_t, F32>;
using U8 = hn::Rebind<uint8_t, F32>;
using VF = hn::Vec<F32>;
using VU = hn::Vec<U32>;

constexpr size_t kInt8Block = kInt8BlockSize;
constexpr size_t kInt4Block = kInt4BlockSize;

size_t Lanes() { return hn::Lanes(F32()); }

VU Magnitude(VF x) { return hn::And(hn::BitCast(U32(), x), hn::Set(U32(), 0x7fffffffu)); }

uint32_t ScalarMagnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; }

// Calls vector(i) for whole vectors of [0, n), then tail(i, count) for the rest.
template <typename Vector, typename Tail>
HWY_INLINE void ForVectors(size_t n, Vector vector, Tail tail) {
  const size_t lanes = Lanes();
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) vector(i);
  if (i < n) tail(i, n - i);
}

uint32_t MaxMagnitudeT(const float* values, size_t n) {
  VU greatest = hn::Zero(U32());
  uint32_t rest = 0;
  ForVectors(
      n, [&](size_t i) HWY_ATTR { greatest = hn::Max(greatest, Magnitude(hn::LoadU(F32(), values + i))); },
      [&](size_t i, size_t count) {
        for (size_t j = i; j < i + count; ++j) rest = std::max(rest, ScalarMagnitude(values[j]));
      });
  return std::max(rest, hn::GetLane(hn::MaxOfLanes(U32(), greatest)));
}

// Round to nearest even in integer arithmetic, not the target's conversion: older targets emulate that one with another rounding.
HWY_INLINE hn::Vec<U16> ToHalf(VF x) {
  const U32 u32;
  const VU bits = hn::BitCast(u32, x);
  const VU magnitude = hn::And(bits, hn::Set(u32, 0x7fffffffu));
  const VU sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const VU odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u32, 1u));
  const VU normal = hn::Sub(hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(u32, 0xfffu)), odd)), hn::Set(u32, 112u << 10));
  // Below 2^-14 a half counts in units of 2^-24, as does a float in [0.5, 1): the addition rounds for us.
  const VF half = hn::Set(F32(), 0.5f);
  const VU subnormal = hn::Sub(hn::BitCast(u32, hn::Add(hn::BitCast(F32(), magnitude), half)), hn::BitCast(u32, half));
  const auto small = hn::Lt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 113 << 23));
  const VU result = hn::Or(sign, hn::IfThenElse(hn::RebindMask(u32, small), subnormal, normal));
  return hn::DemoteTo(U16(), hn::BitCast(I32(), result));  // saturates, but every value fits
}

void FloatToHalfT(const float* values, size_t n, float factor, std::byte* out) {
  auto* halves = reinterpret_cast<uint16_t*>(out);
  const VF scale = hn::Set(F32(), factor);
  ForVectors(
      n, [&](size_t i) HWY_ATTR { hn::StoreU(ToHalf(hn::Mul(hn::LoadU(F32(), values + i), scale)), U16(), halves + i); },
      [&](size_t i, size_t count) HWY_ATTR {
        float padded[16] = {};
        uint16_t converted[16];
        std::memcpy(padded, values + i, count * sizeof(float));
        hn::StoreU(ToHalf(hn::Mul(hn::LoadU(F32(), padded), scale)), U16(), converted);
        std::memcpy(out + 2 * i, converted, 2 * count);
      });
}

bool HalfToFloatT(const std::byte* in, size_t n, float factor, float* out) {
  const auto* halves = reinterpret_cast<const uint16_t*>(in);
  const VF scale = hn::Set(F32(), factor);
  const auto infinity = hn::Set(U16(), uint16_t{0x7c00});
  auto special = hn::Zero(U16());  // all ones where an exponent is all ones
  const auto convert = [&](const uint16_t* from, float* to) HWY_ATTR {
    const auto bits = hn::LoadU(U16(), from);
    special = hn::Or(special, hn::VecFromMask(U16(), hn::Eq(hn::And(bits, infinity), infinity)));
    hn::StoreU(hn::Mul(hn::PromoteTo(F32(), hn::BitCast(F16(), bits)), scale), F32(), to);
  };
  ForVectors(
      n, [&](size_t i) HWY_ATTR { convert(halves + i, out + i); },
      [&](size_t i, size_t count) HWY_ATTR {
        uint16_t padded[16] = {};
        float converted[16];
        std::memcpy(padded, in + 2 * i, 2 * count);
        convert(padded, converted);
        std::memcpy(out + i, converted, count * sizeof(float));
      });
  return hn::AllFalse(U16(), hn::Ne(special, hn::Zero(U16())));
}

HWY_INLINE VU RoundToBfloat(VU bits) {
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1u));
  return hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(U32(), 0x7fffu)), odd));
}

uint32_t FloatToBfloatT(const float* values, size_t n, std::byte* out) {
  auto* bfloats = reinterpret_cast<uint16_t*>(out);
  VU greatest = hn::Zero(U32());
  const auto convert = [&](const float* from, uint16_t* to) HWY_ATTR {
    const VF x = hn::LoadU(F32(), from);
    greatest = hn::Max(greatest, Magnitude(x));
    hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(I32(), RoundToBfloat(hn::BitCast(U32(), x)))), U16(), to);
  };
  ForVectors(
      n, [&](size_t i) HWY_ATTR { convert(values + i, bfloats + i); },
      [&](size_t i, size_t count) HWY_ATTR {
        float padded[16] = {};
        uint16_t converted[16];
        std::memcpy(padded, values + i, count * sizeof(float));
        convert(padded, converted);
        std::memcpy(out + 2 * i, converted, 2 * count);
      });
  return hn::GetLane(hn::MaxOfLanes(U32(), greatest));
}

bool BfloatToFloatT(const std::byte* in, size_t n, float* out) {
  const auto* bfloats = reinterpret_cast<const uint16_t*>(in);
  VU greatest = hn::Zero(U32());
  const auto convert = [&](const uint16_t* from, float* to) HWY_ATTR {
    const VF x = hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), hn::LoadU(U16(), from))));
    greatest = hn::Max(greatest, Magnitude(x));
    hn::StoreU(x, F32(), to);
  };
  ForVectors(
      n, [&](size_t i) HWY_ATTR { convert(bfloats + i, out + i); },
      [&](size_t i, size_t count) HWY_ATTR {
        uint16_t padded[16] = {};
        float converted[16];
        std::memcpy(padded, in + 2 * i, 2 * count);
        convert(padded, converted);
        std::memcpy(out + i, converted, count * sizeof(float));
      });
  return hn::GetLane(hn::MaxOfLanes(U32(), greatest)) <= kMaxMagnitudeBits;
}

// magnitude / codes as a float whose lower 16 bits are zero, rounded up; 0 where it would be subnormal.
HWY_INLINE float BlockScale(uint32_t magnitude, float codes) {
  const float scale = std::bit_cast<float>(magnitude) / codes;
  const uint32_t bits = (std::bit_cast<uint32_t>(scale) + 0xffffu) & 0xffff0000u;
  return bits < (1u << 23) ? 0.0f : std::bit_cast<float>(bits);
}

// Stores one block's scale and returns its inverse.
HWY_INLINE VF StoreScale(uint32_t magnitude, float codes, std::byte* out) {
  const float scale = BlockScale(magnitude, codes);
  const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(scale) >> 16);
  std::memcpy(out, &bits, 2);
  return hn::Set(F32(), scale == 0 ? 0.0f : 1.0f / scale);
}

HWY_INLINE float LoadScale(const std::byte* in, uint32_t* greatest_bits) {
  uint16_t bits;
  std::memcpy(&bits, in, 2);
  *greatest_bits = std::max<uint32_t>(*greatest_bits, bits);  // a set sign bit is greater than every valid scale too
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

template <size_t kBlock>
HWY_INLINE uint32_t BlockMagnitude(const float* block) {
  VU greatest = hn::Zero(U32());
  for (size_t i = 0; i < kBlock; i += Lanes()) greatest = hn::Max(greatest, Magnitude(hn::LoadU(F32(), block + i)));
  return hn::GetLane(hn::MaxOfLanes(U32(), greatest));
}

HWY_INLINE uint32_t QuantizeBlock8(const float* block, std::byte* scale, int8_t* codes) {
  const uint32_t magnitude = BlockMagnitude<kInt8Block>(block);
  const VF inverse = StoreScale(magnitude, 127.0f, scale);
  for (size_t i = 0; i < kInt8Block; i += Lanes()) {
    const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(F32(), block + i), inverse));
    hn::StoreU(hn::DemoteTo(I8(), rounded), I8(), codes + i);
  }
  return magnitude;
}

uint32_t QuantizeInt8T(const float* values, size_t n, std::byte* scales, std::byte* codes) {
  uint32_t greatest = 0;
  size_t i = 0;
  for (; i + kInt8Block <= n; i += kInt8Block, scales += 2) {
    greatest = std::max(greatest, QuantizeBlock8(values + i, scales, reinterpret_cast<int8_t*>(codes + i)));
  }
  if (i < n) {
    float padded[kInt8Block] = {};
    int8_t quantized[kInt8Block];
    std::memcpy(padded, values + i, (n - i) * sizeof(float));
    greatest = std::max(greatest, QuantizeBlock8(padded, scales, quantized));
    std::memcpy(codes + i, quantized, n - i);
  }
  return greatest;
}

HWY_INLINE void DequantizeBlock8(float scale, const int8_t* codes, float* out) {
  const VF factor = hn::Set(F32(), scale);
  for (size_t i = 0; i < kInt8Block; i += Lanes()) {
    const auto wide = hn::PromoteTo(I32(), hn::LoadU(I8(), codes + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(F32(), wide), factor), F32(), out + i);
  }
}

bool DequantizeInt8T(const std::byte* scales, const std::byte* codes, size_t n, float* out) {
  uint32_t greatest = 0;
  size_t i = 0;
  for (; i + kInt8Block <= n; i += kInt8Block, scales += 2) {
    DequantizeBlock8(LoadScale(scales, &greatest), reinterpret_cast<const int8_t*>(codes + i), out + i);
  }
  if (i < n) {
    int8_t padded[kInt8Block] = {};
    float decoded[kInt8Block];
    std::memcpy(padded, codes + i, n - i);
    DequantizeBlock8(LoadScale(scales, &greatest), padded, decoded);
    std::memcpy(out + i, decoded, (n - i) * sizeof(float));
  }
  return greatest <= kMaxScaleBits;
}

HWY_INLINE uint32_t QuantizeBlock4(const float* block, std::byte* scale, uint8_t* codes) {
  const uint32_t magnitude = BlockMagnitude<kInt4Block>(block);
  const VF inverse = StoreScale(magnitude, 7.0f, scale);
  const auto eight = hn::Set(I32(), 8);
  for (size_t i = 0; i < kInt4Block / 2; i += Lanes()) {
    const auto low = hn::Add(hn::NearestInt(hn::Mul(hn::LoadU(F32(), block + i), inverse)), eight);
    const auto high = hn::Add(hn::NearestInt(hn::Mul(hn::LoadU(F32(), block + kInt4Block / 2 + i), inverse)), eight);
    hn::StoreU(hn::DemoteTo(U8(), hn::Or(low, hn::ShiftLeft<4>(high))), U8(), codes + i);
  }
  return magnitude;
}

uint32_t QuantizeInt4T(const float* values, size_t n, std::byte* scales, std::byte* codes) {
  uint32_t greatest = 0;
  auto* out = reinterpret_cast<uint8_t*>(codes);
  size_t i = 0;
  for (; i + kInt4Block <= n; i += kInt4Block, scales += 2, out += kInt4Block / 2) {
    greatest = std::max(greatest, QuantizeBlock4(values + i, scales, out));
  }
  if (i < n) {
    float padded[kInt4Block] = {};
    std::memcpy(padded, values + i, (n - i) * sizeof(float));
    greatest = std::max(greatest, QuantizeBlock4(padded, scales, out));
  }
  return greatest;
}

HWY_INLINE void DequantizeBlock4(float scale, const uint8_t* codes, float* out) {
  const VF factor = hn::Set(F32(), scale);
  const auto eight = hn::Set(I32(), 8);
  const auto mask = hn::Set(I32(), 15);
  for (size_t i = 0; i < kInt4Block / 2; i += Lanes()) {
    const auto both = hn::PromoteTo(I32(), hn::LoadU(U8(), codes + i));
    const auto low = hn::Sub(hn::And(both, mask), eight);
    const auto high = hn::Sub(hn::ShiftRight<4>(both), eight);
    hn::StoreU(hn::Mul(hn::ConvertTo(F32(), low), factor), F32(), out + i);
    hn::StoreU(hn::Mul(hn::ConvertTo(F32(), high), factor), F32(), out + kInt4Block / 2 + i);
  }
}

bool DequantizeInt4T(const std::byte* scales, const std::byte* codes, size_t n, float* out) {
  uint32_t greatest = 0;
  const auto* in = reinterpret_cast<const uint8_t*>(codes);
  size_t i = 0;
  for (; i + kInt4Block <= n; i += kInt4Block, scales += 2, in += kInt4Block / 2) {
    DequantizeBlock4(LoadScale(scales, &greatest), in, out + i);
  }
  if (i < n) {
    float decoded[kInt4Block];
    DequantizeBlock4(LoadScale(scales, &greatest), in, decoded);
    std::memcpy(out + i, decoded, (n - i) * sizeof(float));
  }
  return greatest <= kMaxScaleBits;
}

size_t CompactAtLeastT(const float* values, size_t n, uint32_t threshold, size_t capacity, uint32_t* indices, float* kept_values) {
  const size_t lanes = Lanes();
  const auto below = hn::Set(I32(), static_cast<int32_t>(threshold) - 1);
  const VU lane_numbers = hn::Iota(U32(), 0);
  size_t count = 0;
  size_t i = 0;
  const auto reaches = [&](VF x) HWY_ATTR { return hn::Gt(hn::BitCast(I32(), Magnitude(x)), below); };
  const auto append = [&](VF x, size_t at, auto mask) HWY_ATTR {
    // Compress in registers, then store whole vectors: a compressing store to memory is microcoded on some processors.
    hn::StoreU(hn::Compress(hn::Add(hn::Set(U32(), static_cast<uint32_t>(at)), lane_numbers), hn::RebindMask(U32(), mask)), U32(),
               indices + count);
    hn::StoreU(hn::Compress(x, hn::RebindMask(F32(), mask)), F32(), kept_values + count);
    count += hn::CountTrue(I32(), mask);
  };
  // Four vectors at a time: at 1 % more than half of the groups hold nothing and cost one branch.
  for (; i + 4 * lanes <= n && count <= capacity; i += 4 * lanes) {
    const VF a = hn::LoadU(F32(), values + i);
    const VF b = hn::LoadU(F32(), values + i + lanes);
    const VF c = hn::LoadU(F32(), values + i + 2 * lanes);
    const VF d = hn::LoadU(F32(), values + i + 3 * lanes);
    const auto ma = reaches(a), mb = reaches(b), mc = reaches(c), md = reaches(d);
    if (HWY_LIKELY(hn::AllFalse(I32(), hn::Or(hn::Or(ma, mb), hn::Or(mc, md))))) continue;
    append(a, i, ma);
    append(b, i + lanes, mb);
    append(c, i + 2 * lanes, mc);
    append(d, i + 3 * lanes, md);
  }
  for (; i < n && count <= capacity; ++i) {
    if (ScalarMagnitude(values[i]) < threshold) continue;
    indices[count] = static_cast<uint32_t>(i);
    kept_values[count++] = values[i];
  }
  return count;
}

}  // namespace fusionllm::compression::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fusionllm::compression {

HWY_EXPORT(MaxMagnitudeT);
HWY_EXPORT(FloatToHalfT);
HWY_EXPORT(HalfToFloatT);
HWY_EXPORT(FloatToBfloatT);
HWY_EXPORT(BfloatToFloatT);
HWY_EXPORT(QuantizeInt8T);
HWY_EXPORT(DequantizeInt8T);
HWY_EXPORT(QuantizeInt4T);
HWY_EXPORT(DequantizeInt4T);
HWY_EXPORT(CompactAtLeastT);

int32_t HalfExponent(uint32_t max_magnitude) {
  const int exponent = static_cast<int>(max_magnitude >> 23) - 127 - 14;
  return std::clamp(exponent, kMinHalfExponent, kMaxHalfExponent);
}

uint32_t MaxMagnitude(const float* values, size_t n) { return HWY_DYNAMIC_DISPATCH(MaxMagnitudeT)(values, n); }

size_t FindUnencodable(const float* values, size_t n) {
  return std::find_if(values, values + n, [](float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffffu) > kMaxMagnitudeBits; }) - values;
}

void FloatToHalf(const float* values, size_t n, float factor, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(FloatToHalfT)(values, n, factor, out);
}
bool HalfToFloat(const std::byte* halves, size_t n, float factor, float* out) {
  return HWY_DYNAMIC_DISPATCH(HalfToFloatT)(halves, n, factor, out);
}
uint32_t FloatToBfloat(const float* values, size_t n, std::byte* out) { return HWY_DYNAMIC_DISPATCH(FloatToBfloatT)(values, n, out); }
bool BfloatToFloat(const std::byte* bfloats, size_t n, float* out) { return HWY_DYNAMIC_DISPATCH(BfloatToFloatT)(bfloats, n, out); }
uint32_t QuantizeInt8(const float* values, size_t n, std::byte* scales, std::byte* codes) {
  return HWY_DYNAMIC_DISPATCH(QuantizeInt8T)(values, n, scales, codes);
}
bool DequantizeInt8(const std::byte* scales, const std::byte* codes, size_t n, float* out) {
  return HWY_DYNAMIC_DISPATCH(DequantizeInt8T)(scales, codes, n, out);
}
uint32_t QuantizeInt4(const float* values, size_t n, std::byte* scales, std::byte* codes) {
  return HWY_DYNAMIC_DISPATCH(QuantizeInt4T)(values, n, scales, codes);
}
bool DequantizeInt4(const std::byte* scales, const std::byte* codes, size_t n, float* out) {
  return HWY_DYNAMIC_DISPATCH(DequantizeInt4T)(scales, codes, n, out);
}
size_t CompactAtLeast(const float* values, size_t n, uint32_t threshold, size_t capacity, uint32_t* indices, float* kept_values) {
  return HWY_DYNAMIC_DISPATCH(CompactAtLeastT)(values, n, threshold, capacity, indices, kept_values);
}

}  // namespace fusionllm::compression
#endif  // HWY_ONCE
