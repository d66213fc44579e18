#include "lib/kernels/cpu/vector/bf16.h"

#include "lib/tensor/bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/cpu/vector/bf16.cc"
#include "hwy/foreach_target.h"
// Highway wants foreach_target.h first.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fusionllm::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Words = hn::ScalableTag<uint32_t>;
using Halves = hn::Rebind<uint16_t, Words>;
using SignedWords = hn::RebindToSigned<Words>;
using Bits = hn::Vec<Words>;

// The bits of a float rounded to bf16, in the lower half.
HWY_INLINE Bits Rounded(Bits bits) {
  const Words d;
  const Bits half = hn::ShiftRight<16>(bits);
  const Bits odd = hn::And(half, hn::Set(d, 1u));
  const Bits rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fffu)), odd));
  const Bits quiet = hn::Or(half, hn::Set(d, 0x40u));
  const auto is_nan = hn::Gt(hn::And(bits, hn::Set(d, 0x7fffffffu)), hn::Set(d, 0x7f800000u));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

// From the first vector that would end beyond n on, `one` takes the elements.
template <typename Vector, typename One>
HWY_INLINE void ForEach(int64_t n, Vector vector, One one) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Words()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) vector(i);
  for (; i < n; ++i) one(i);
}

HWY_INLINE const uint32_t* BitsOf(const float* values) { return reinterpret_cast<const uint32_t*>(values); }
HWY_INLINE uint32_t* BitsOf(float* values) { return reinterpret_cast<uint32_t*>(values); }

void Widen(const uint16_t* from, float* to, int64_t n) {
  ForEach(
      n,
      [&](int64_t i)
          HWY_ATTR { hn::StoreU(hn::ShiftLeft<16>(hn::PromoteTo(Words(), hn::LoadU(Halves(), from + i))), Words(), BitsOf(to) + i); },
      [&](int64_t i) HWY_ATTR { to[i] = tensor::UpcastBf16(from[i]); });
}

void Round(const float* from, uint16_t* to, int64_t n) {
  ForEach(
      n,
      [&](int64_t i) HWY_ATTR {
        const Bits rounded = Rounded(hn::LoadU(Words(), BitsOf(from) + i));
        hn::StoreU(hn::DemoteTo(Halves(), hn::BitCast(SignedWords(), rounded)), Halves(), to + i);
      },
      [&](int64_t i) HWY_ATTR { to[i] = tensor::RoundToBf16(from[i]); });
}

void RoundFloats(const float* from, float* to, int64_t n) {
  ForEach(
      n, [&](int64_t i) HWY_ATTR { hn::StoreU(hn::ShiftLeft<16>(Rounded(hn::LoadU(Words(), BitsOf(from) + i))), Words(), BitsOf(to) + i); },
      [&](int64_t i) HWY_ATTR { to[i] = tensor::UpcastBf16(tensor::RoundToBf16(from[i])); });
}

}  // namespace
}  // namespace fusionllm::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fusionllm::kernels::cpu {

HWY_EXPORT(Widen);
HWY_EXPORT(Round);
HWY_EXPORT(RoundFloats);

void UpcastBf16(const uint16_t* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(Widen)(from, to, n); }
void RoundToBf16(const float* from, uint16_t* to, int64_t n) { HWY_DYNAMIC_DISPATCH(Round)(from, to, n); }
void RoundFloatsToBf16(const float* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(RoundFloats)(from, to, n); }

}  // namespace fusionllm::kernels::cpu
#endif
