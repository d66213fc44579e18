#include "lib/kernels/cpu/vector/rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/cpu/vector/rows.cc"
#include "hwy/foreach_target.h"
// Highway wants foreach_target.h first.
#include "lib/kernels/cpu/vector/math.inc"

HWY_BEFORE_NAMESPACE();
namespace fusionllm::kernels::cpu::HWY_NAMESPACE {
namespace {

// term(i) and tail(i, count) give one vector of terms; two accumulators hide the latency of the addition.
template <typename Terms>
HWY_INLINE float SumTerms(const Terms& terms, int64_t n) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::Add(even, terms.Whole(i));
    odd = hn::Add(odd, terms.Whole(i + lanes));
  }
  for (; i + lanes <= n; i += lanes) even = hn::Add(even, terms.Whole(i));
  if (i < n) odd = hn::Add(odd, terms.Tail(i, n - i));
  return Sum(hn::Add(even, odd));
}

struct Plain {
  const float* x;
  HWY_INLINE Vector Whole(int64_t i) const { return hn::LoadU(Tag(), x + i); }
  HWY_INLINE Vector Tail(int64_t i, int64_t count) const { return LoadTail(x + i, count, 0); }
};
struct Products {
  const float* a;
  const float* b;
  HWY_INLINE Vector Whole(int64_t i) const { return hn::Mul(hn::LoadU(Tag(), a + i), hn::LoadU(Tag(), b + i)); }
  HWY_INLINE Vector Tail(int64_t i, int64_t count) const { return hn::Mul(LoadTail(a + i, count, 0), LoadTail(b + i, count, 0)); }
};
struct CenteredSquares {
  const float* x;
  float mean;
  HWY_INLINE Vector Of(Vector v) const {
    const Vector centered = hn::Sub(v, Value(mean));
    return hn::Mul(centered, centered);
  }
  HWY_INLINE Vector Whole(int64_t i) const { return Of(hn::LoadU(Tag(), x + i)); }
  HWY_INLINE Vector Tail(int64_t i, int64_t count) const { return Of(LoadTail(x + i, count, mean)); }
};
template <bool kStore>
struct Exponentials {
  const float* x;
  float offset;
  float* y;
  HWY_INLINE Vector Whole(int64_t i) const {
    const Vector e = Exp(hn::Sub(hn::LoadU(Tag(), x + i), Value(offset)));
    if (kStore) hn::StoreU(e, Tag(), y + i);
    return e;
  }
  HWY_INLINE Vector Tail(int64_t i, int64_t count) const {
    const Vector e = Exp(hn::Sub(LoadTail(x + i, count, -std::numeric_limits<float>::infinity()), Value(offset)));
    if (kStore) StoreTail(e, y + i, count);
    return e;
  }
};

float Max(const float* x, int64_t n) {
  const Tag d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Vector top = Value(kLowest);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) top = hn::Max(top, hn::LoadU(d, x + i));
  if (i < n) top = hn::Max(top, LoadTail(x + i, n - i, kLowest));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}
float SumRow(const float* x, int64_t n) { return SumTerms(Plain{x}, n); }
float Dot(const float* a, const float* b, int64_t n) { return SumTerms(Products{a, b}, n); }
float ExpRow(const float* x, float offset, float* y, int64_t n) {
  return y == nullptr ? SumTerms(Exponentials<false>{x, offset, y}, n) : SumTerms(Exponentials<true>{x, offset, y}, n);
}

HWY_INLINE Vector SoftmaxGradOf(Vector p, Vector dp, float delta, float scale) {
  return hn::Mul(hn::Mul(p, hn::Sub(dp, Value(delta))), Value(scale));
}
void SoftmaxGrad(const float* p, const float* dp, float delta, float scale, float* ds, int64_t n) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(SoftmaxGradOf(hn::LoadU(d, p + i), hn::LoadU(d, dp + i), delta, scale), d, ds + i);
  if (i < n) StoreTail(SoftmaxGradOf(LoadTail(p + i, n - i, 0), LoadTail(dp + i, n - i, 0), delta, scale), ds + i, n - i);
}

void LayerNorm(const float* x, const float* weight, const float* bias, float epsilon, float* y, float* mean_out, float* rstd_out,
               int64_t n) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float mean = SumRow(x, n) / static_cast<float>(n);
  const float variance = SumTerms(CenteredSquares{x, mean}, n) / static_cast<float>(n);
  const float rstd = 1 / std::sqrt(variance + epsilon);
  *mean_out = mean;
  *rstd_out = rstd;
  const auto of = [&](Vector v, Vector w, Vector b) HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(v, Value(mean)), Value(rstd)), w, b); };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(of(hn::LoadU(d, x + i), hn::LoadU(d, weight + i), hn::LoadU(d, bias + i)), d, y + i);
  if (i < n) StoreTail(of(LoadTail(x + i, n - i, 0), LoadTail(weight + i, n - i, 0), LoadTail(bias + i, n - i, 0)), y + i, n - i);
}

// One vector of a row of the backward pass; the tail goes through the same arithmetic.
struct LayerNormTerms {
  Vector sum, sum_normalized;
  float mean, rstd;
  HWY_INLINE void Add(Vector x, Vector dy, Vector w, Vector& dweight, Vector& dbias) {
    const Vector normalized = hn::Mul(hn::Sub(x, Value(mean)), Value(rstd));
    const Vector g = hn::Mul(dy, w);
    dweight = hn::MulAdd(dy, normalized, dweight);
    dbias = hn::Add(dbias, dy);
    sum = hn::Add(sum, g);
    sum_normalized = hn::MulAdd(g, normalized, sum_normalized);
  }
};

void LayerNormGrad(const float* x, const float* dy, const float* weight, float mean, float rstd, float* dx, float* dweight, float* dbias,
                   int64_t n) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  LayerNormTerms terms{hn::Zero(d), hn::Zero(d), mean, rstd};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    Vector dw = hn::LoadU(d, dweight + i), db = hn::LoadU(d, dbias + i);
    terms.Add(hn::LoadU(d, x + i), hn::LoadU(d, dy + i), hn::LoadU(d, weight + i), dw, db);
    hn::StoreU(dw, d, dweight + i);
    hn::StoreU(db, d, dbias + i);
  }
  if (i < n) {
    Vector dw = LoadTail(dweight + i, n - i, 0), db = LoadTail(dbias + i, n - i, 0);
    terms.Add(LoadTail(x + i, n - i, 0), LoadTail(dy + i, n - i, 0), LoadTail(weight + i, n - i, 0), dw, db);
    StoreTail(dw, dweight + i, n - i);
    StoreTail(db, dbias + i, n - i);
  }
  if (dx == nullptr) return;
  const Vector a = Value(Sum(terms.sum) / static_cast<float>(n));
  const Vector b = Value(Sum(terms.sum_normalized) / static_cast<float>(n));
  const auto of = [&](Vector xv, Vector dyv, Vector w) HWY_ATTR {
    const Vector normalized = hn::Mul(hn::Sub(xv, Value(mean)), Value(rstd));
    return hn::Mul(hn::Sub(hn::Mul(dyv, w), hn::MulAdd(normalized, b, a)), Value(rstd));
  };
  for (i = 0; i + lanes <= n; i += lanes) hn::StoreU(of(hn::LoadU(d, x + i), hn::LoadU(d, dy + i), hn::LoadU(d, weight + i)), d, dx + i);
  if (i < n) StoreTail(of(LoadTail(x + i, n - i, 0), LoadTail(dy + i, n - i, 0), LoadTail(weight + i, n - i, 0)), dx + i, n - i);
}

}  // namespace
}  // namespace fusionllm::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fusionllm::kernels::cpu {

HWY_EXPORT(Max);
HWY_EXPORT(Dot);
HWY_EXPORT(ExpRow);
HWY_EXPORT(SoftmaxGrad);
HWY_EXPORT(LayerNorm);
HWY_EXPORT(LayerNormGrad);

float RowMax(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Max)(x, n); }
float RowDot(const float* a, const float* b, int64_t n) { return HWY_DYNAMIC_DISPATCH(Dot)(a, b, n); }
float RowExp(const float* x, float offset, float* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(ExpRow)(x, offset, y, n); }
void SoftmaxRowGrad(const float* p, const float* dp, float delta, float scale, float* ds, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGrad)(p, dp, delta, scale, ds, n);
}
void LayerNormRow(const float* x, const float* weight, const float* bias, float epsilon, float* y, float* mean, float* rstd, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, weight, bias, epsilon, y, mean, rstd, n);
}
void LayerNormRowGrad(const float* x, const float* dy, const float* weight, float mean, float rstd, float* dx, float* dweight, float* dbias,
                      int64_t n) {
  HWY_DYNAMIC_DISPATCH(LayerNormGrad)(x, dy, weight, mean, rstd, dx, dweight, dbias, n);
}

}  // namespace fusionllm::kernels::cpu
#endif
