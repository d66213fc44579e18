#include "lib/kernels/cpu/vector/spans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/cpu/vector/spans.cc"
#include "hwy/foreach_target.h"
// Highway wants foreach_target.h first.
#include "lib/kernels/cpu/vector/math.inc"
#include "lib/kernels/cpu/vector/target.h"

HWY_BEFORE_NAMESPACE();
namespace fusionllm::kernels::cpu::HWY_NAMESPACE {
namespace {

struct Relu {
  HWY_INLINE Vector operator()(Vector x) const { return AtLeast(0.f, x); }
};
struct TanhOf {
  HWY_INLINE Vector operator()(Vector x) const { return Tanh(x); }
};
struct SigmoidOf {
  HWY_INLINE Vector operator()(Vector x) const { return Sigmoid(x); }
};
struct NegOf {
  HWY_INLINE Vector operator()(Vector x) const { return hn::Neg(x); }
};
struct SquareOf {
  HWY_INLINE Vector operator()(Vector x) const { return hn::Mul(x, x); }
};
struct Affine {
  Vector factor, shift;
  HWY_INLINE Vector operator()(Vector x) const { return hn::Add(hn::Mul(x, factor), shift); }
};

// gelu(x) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), because (1 + tanh u) / 2 = sigmoid(2u).
constexpr float kTwoSqrt2OverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

HWY_INLINE Vector GeluGate(Vector x, Vector square) {
  return Sigmoid(hn::Mul(hn::Mul(x, Value(kTwoSqrt2OverPi)), hn::MulAdd(square, Value(kCubic), Value(1.f))));
}
struct Gelu {
  HWY_INLINE Vector operator()(Vector x) const { return hn::Mul(x, GeluGate(x, hn::Mul(x, x))); }
};
struct GeluGrad {
  HWY_INLINE Vector operator()(Vector x, Vector dy) const {
    const Vector square = hn::Mul(x, x);
    const Vector s = GeluGate(x, square);
    const Vector slope = hn::Mul(Value(kTwoSqrt2OverPi), hn::MulAdd(square, Value(3 * kCubic), Value(1.f)));
    const Vector bump = hn::Mul(hn::Mul(x, slope), hn::NegMulAdd(s, s, s));
    return hn::Mul(dy, hn::Add(s, bump));
  }
};

struct Plus {
  HWY_INLINE Vector operator()(Vector a, Vector b) const { return hn::Add(a, b); }
};
struct Minus {
  HWY_INLINE Vector operator()(Vector a, Vector b) const { return hn::Sub(a, b); }
};
struct Times {
  HWY_INLINE Vector operator()(Vector a, Vector b) const { return hn::Mul(a, b); }
};
struct Over {
  HWY_INLINE Vector operator()(Vector a, Vector b) const { return hn::Div(a, b); }
};
struct ReluGrad {
  HWY_INLINE Vector operator()(Vector y, Vector dy) const { return hn::IfThenElseZero(hn::Gt(y, hn::Zero(Tag())), dy); }
};
struct TanhGrad {
  HWY_INLINE Vector operator()(Vector y, Vector dy) const { return hn::Mul(dy, hn::NegMulAdd(y, y, Value(1.f))); }
};
struct SigmoidGrad {
  HWY_INLINE Vector operator()(Vector y, Vector dy) const { return hn::Mul(dy, hn::NegMulAdd(y, y, y)); }
};

template <typename Function>
HWY_INLINE void Map(Function f, const float* x, float* y, int64_t n) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
  if (i < n) StoreTail(f(LoadTail(x + i, n - i, 0)), y + i, n - i);
}

template <typename Function>
HWY_INLINE void Zip(Function f, const float* a, const float* b, float* y, int64_t n) {
  const Tag d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  if (i < n) StoreTail(f(LoadTail(a + i, n - i, 0), LoadTail(b + i, n - i, 1)), y + i, n - i);
}

void ApplyUnary(UnaryFunction function, const float* x, float* y, int64_t n) {
  switch (function) {
    case UnaryFunction::kRelu:
      return Map(Relu(), x, y, n);
    case UnaryFunction::kTanh:
      return Map(TanhOf(), x, y, n);
    case UnaryFunction::kSigmoid:
      return Map(SigmoidOf(), x, y, n);
    case UnaryFunction::kGeluTanh:
      return Map(Gelu(), x, y, n);
    case UnaryFunction::kNeg:
      return Map(NegOf(), x, y, n);
    case UnaryFunction::kSquare:
      return Map(SquareOf(), x, y, n);
  }
}

void ApplyBinary(BinaryFunction function, const float* a, const float* b, float* y, int64_t n) {
  switch (function) {
    case BinaryFunction::kAdd:
      return Zip(Plus(), a, b, y, n);
    case BinaryFunction::kSub:
      return Zip(Minus(), a, b, y, n);
    case BinaryFunction::kMul:
      return Zip(Times(), a, b, y, n);
    case BinaryFunction::kDiv:
      return Zip(Over(), a, b, y, n);
    case BinaryFunction::kReluGrad:
      return Zip(ReluGrad(), a, b, y, n);
    case BinaryFunction::kTanhGrad:
      return Zip(TanhGrad(), a, b, y, n);
    case BinaryFunction::kSigmoidGrad:
      return Zip(SigmoidGrad(), a, b, y, n);
    case BinaryFunction::kGeluTanhGrad:
      return Zip(GeluGrad(), a, b, y, n);
  }
}

void ScaleShift(const float* x, float factor, float shift, float* y, int64_t n) { Map(Affine{Value(factor), Value(shift)}, x, y, n); }

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace fusionllm::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fusionllm::kernels::cpu {

HWY_EXPORT(ApplyUnary);
HWY_EXPORT(ApplyBinary);
HWY_EXPORT(ScaleShift);
HWY_EXPORT(TargetName);

void Apply(UnaryFunction function, const float* x, float* y, int64_t n) { HWY_DYNAMIC_DISPATCH(ApplyUnary)(function, x, y, n); }
void Apply(BinaryFunction function, const float* a, const float* b, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ApplyBinary)(function, a, b, y, n);
}
void ScaleShift(const float* x, float factor, float shift, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ScaleShift)(x, factor, shift, y, n);
}
absl::string_view VectorTarget() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace fusionllm::kernels::cpu
#endif
