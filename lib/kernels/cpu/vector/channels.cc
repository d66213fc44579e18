#include "lib/kernels/cpu/vector/channels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/cpu/vector/channels.cc"
#include "hwy/foreach_target.h"
// Highway wants foreach_target.h first.
#include "lib/kernels/cpu/vector/math.inc"

HWY_BEFORE_NAMESPACE();
namespace fusionllm::kernels::cpu::HWY_NAMESPACE {
namespace {

struct WholeAccess {
  HWY_INLINE Vector Load(const float* p) const { return hn::LoadU(Tag(), p); }
  HWY_INLINE void Store(Vector v, float* p) const { hn::StoreU(v, Tag(), p); }
};
struct TailAccess {
  int64_t count;
  HWY_INLINE Vector Load(const float* p) const { return LoadTail(p, count, 0); }
  HWY_INLINE void Store(Vector v, float* p) const { StoreTail(v, p, count); }
};

// body(access, r * channels + c, c) for every vector of every row.
template <typename Body>
HWY_INLINE void ForEach(int64_t rows, int64_t channels, const Body& body) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Tag()));
  for (int64_t r = 0; r < rows; ++r) {
    int64_t c = 0;
    for (; c + lanes <= channels; c += lanes) body(WholeAccess(), r * channels + c, c);
    if (c < channels) body(TailAccess{channels - c}, r * channels + c, c);
  }
}

struct RowAdder {
  const float* x;
  float* sum;
  template <typename Access>
  HWY_INLINE void operator()(Access a, int64_t i, int64_t c) const {
    a.Store(hn::Add(a.Load(sum + c), a.Load(x + i)), sum + c);
  }
};
struct SquareAdder {
  const float* x;
  const float* mean;
  float* sum;
  template <typename Access>
  HWY_INLINE void operator()(Access a, int64_t i, int64_t c) const {
    const Vector centered = hn::Sub(a.Load(x + i), a.Load(mean + c));
    a.Store(hn::MulAdd(centered, centered, a.Load(sum + c)), sum + c);
  }
};
struct GradientAdder {
  const float* x;
  const float* dy;
  const float* mean;
  float* sum_product;
  float* sum_dy;
  template <typename Access>
  HWY_INLINE void operator()(Access a, int64_t i, int64_t c) const {
    const Vector g = a.Load(dy + i);
    a.Store(hn::MulAdd(g, hn::Sub(a.Load(x + i), a.Load(mean + c)), a.Load(sum_product + c)), sum_product + c);
    a.Store(hn::Add(a.Load(sum_dy + c), g), sum_dy + c);
  }
};
struct Normalizer {
  const float* x;
  const float* mean;
  const float* factor;
  const float* shift;
  float* y;
  template <typename Access>
  HWY_INLINE void operator()(Access a, int64_t i, int64_t c) const {
    a.Store(hn::MulAdd(hn::Sub(a.Load(x + i), a.Load(mean + c)), a.Load(factor + c), a.Load(shift + c)), y + i);
  }
};
struct Combiner {
  const float* x;
  const float* dy;
  const float* mean;
  const float* factor;
  const float* slope;
  const float* shift;
  float* dx;
  template <typename Access>
  HWY_INLINE void operator()(Access a, int64_t i, int64_t c) const {
    const Vector tilted = hn::MulAdd(hn::Sub(a.Load(x + i), a.Load(mean + c)), a.Load(slope + c), a.Load(shift + c));
    a.Store(hn::MulAdd(a.Load(dy + i), a.Load(factor + c), tilted), dx + i);
  }
};

void Rows(const float* x, int64_t rows, int64_t channels, float* sum) { ForEach(rows, channels, RowAdder{x, sum}); }
void Squares(const float* x, const float* mean, int64_t rows, int64_t channels, float* sum) {
  ForEach(rows, channels, SquareAdder{x, mean, sum});
}
void Gradients(const float* x, const float* dy, const float* mean, int64_t rows, int64_t channels, float* sum_product, float* sum_dy) {
  ForEach(rows, channels, GradientAdder{x, dy, mean, sum_product, sum_dy});
}
void Normalize(const float* x, const float* mean, const float* factor, const float* shift, int64_t rows, int64_t channels, float* y) {
  ForEach(rows, channels, Normalizer{x, mean, factor, shift, y});
}
void Combine(const float* x, const float* dy, const float* mean, const float* factor, const float* slope, const float* shift, int64_t rows,
             int64_t channels, float* dx) {
  ForEach(rows, channels, Combiner{x, dy, mean, factor, slope, shift, dx});
}

}  // namespace
}  // namespace fusionllm::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fusionllm::kernels::cpu {

HWY_EXPORT(Rows);
HWY_EXPORT(Squares);
HWY_EXPORT(Gradients);
HWY_EXPORT(Normalize);
HWY_EXPORT(Combine);

void AddRows(const float* x, int64_t rows, int64_t channels, float* sum) { HWY_DYNAMIC_DISPATCH(Rows)(x, rows, channels, sum); }
void AddCenteredSquares(const float* x, const float* mean, int64_t rows, int64_t channels, float* sum) {
  HWY_DYNAMIC_DISPATCH(Squares)(x, mean, rows, channels, sum);
}
void AddGradientSums(const float* x, const float* dy, const float* mean, int64_t rows, int64_t channels, float* sum_product,
                     float* sum_dy) {
  HWY_DYNAMIC_DISPATCH(Gradients)(x, dy, mean, rows, channels, sum_product, sum_dy);
}
void NormalizeRows(const float* x, const float* mean, const float* factor, const float* shift, int64_t rows, int64_t channels, float* y) {
  HWY_DYNAMIC_DISPATCH(Normalize)(x, mean, factor, shift, rows, channels, y);
}
void CombineRows(const float* x, const float* dy, const float* mean, const float* factor, const float* slope, const float* shift,
                 int64_t rows, int64_t channels, float* dx) {
  HWY_DYNAMIC_DISPATCH(Combine)(x, dy, mean, factor, slope, shift, rows, channels, dx);
}

}  // namespace fusionllm::kernels::cpu
#endif
