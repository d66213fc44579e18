// Vector exp, sigmoid and tanh for the target being compiled (included once per target by Highway's foreach_target.h).
//
// Errors measured against libm over the whole range: below 2e-7 relative (vector_test.cc). NaN in, NaN out: operand order in Min and Max
// matters on x86, where the second operand wins a comparison with NaN.
#if defined(FUSIONLLM_KERNELS_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSIONLLM_KERNELS_CPU_VECTOR_MATH_INL_H_
#undef FUSIONLLM_KERNELS_CPU_VECTOR_MATH_INL_H_
#else
#define FUSIONLLM_KERNELS_CPU_VECTOR_MATH_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fusionllm::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

HWY_INLINE Vector Value(float x) { return hn::Set(Tag(), x); }

// e^x for x <= 88; larger arguments give e^88, those whose result is not a normal number give 0.
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r), q a Chebyshev fit of degree 4 (error 1e-8).
HWY_INLINE Vector Exp(Vector x) {
  const Vector clamped = hn::Max(Value(-88.f), hn::Min(Value(88.f), x));
  const Vector n = hn::Round(hn::Mul(clamped, Value(1.44269504f)));
  // ln 2 in two parts, so that n ln 2 is exact to twice the precision.
  const Vector r = hn::NegMulAdd(n, Value(1.42860677e-6f), hn::NegMulAdd(n, Value(0.693145752f), clamped));
  Vector q = hn::MulAdd(Value(0.00139337336f), r, Value(0.00836323574f));
  q = hn::MulAdd(q, r, Value(0.0416664630f));
  q = hn::MulAdd(q, r, Value(0.166665763f));
  q = hn::MulAdd(q, r, Value(0.5f));
  const Vector mantissa = hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), Value(1.f));
  const hn::RebindToSigned<Tag> integers;
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(integers, n), hn::Set(integers, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, Value(-87.3365f)), hn::Mul(mantissa, hn::BitCast(Tag(), exponent)));
}

HWY_INLINE Vector Sigmoid(Vector x) { return hn::Div(Value(1.f), hn::Add(Value(1.f), Exp(hn::Neg(x)))); }

// Near 0 an odd polynomial (Chebyshev fit, error 2e-8), elsewhere 1 - 2 / (e^2|x| + 1) with the sign of x.
HWY_INLINE Vector Tanh(Vector x) {
  const Vector magnitude = hn::Abs(x);
  const Vector z = hn::Mul(x, x);
  Vector p = hn::MulAdd(Value(-0.00610494195f), z, Value(0.0210036356f));
  p = hn::MulAdd(p, z, Value(-0.0538524948f));
  p = hn::MulAdd(p, z, Value(0.133327827f));
  p = hn::MulAdd(p, z, Value(-0.333333284f));
  const Vector near = hn::MulAdd(hn::Mul(p, z), x, x);
  const Vector far = hn::Sub(Value(1.f), hn::Div(Value(2.f), hn::Add(Exp(hn::Add(magnitude, magnitude)), Value(1.f))));
  return hn::IfThenElse(hn::Gt(magnitude, Value(0.625f)), hn::CopySign(far, x), near);
}

// Up to one vector of elements that lie at the end of a row; the lanes beyond are `fill`.
HWY_INLINE Vector LoadTail(const float* from, int64_t count, float fill) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(Value(fill), Tag(), lanes);
  std::memcpy(lanes, from, static_cast<size_t>(count) * sizeof(float));
  return hn::Load(Tag(), lanes);
}

HWY_INLINE void StoreTail(Vector v, float* to, int64_t count) {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, Tag(), lanes);
  std::memcpy(to, lanes, static_cast<size_t>(count) * sizeof(float));
}

HWY_INLINE float Sum(Vector v) { return hn::GetLane(hn::SumOfLanes(Tag(), v)); }

}  // namespace fusionllm::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
