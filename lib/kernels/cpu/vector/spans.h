// Elementwise vector code over n consecutive floats, dispatched at run time to the best instruction set.
//
// Input and output spans may be the same memory, but must not overlap otherwise. No alignment is needed. Thread-safe.
#pragma once

#include <cstdint>

namespace fusionllm::kernels::cpu {

enum class UnaryFunction { kRelu, kTanh, kSigmoid, kGeluTanh, kNeg, kSquare };
enum class BinaryFunction { kAdd, kSub, kMul, kDiv, kReluGrad, kTanhGrad, kSigmoidGrad, kGeluTanhGrad };

// y = f(x)
void Apply(UnaryFunction function, const float* x, float* y, int64_t n);
// y = f(a, b); the gradients take (saved x or y, dy).
void Apply(BinaryFunction function, const float* a, const float* b, float* y, int64_t n);
// y = factor x + shift
void ScaleShift(const float* x, float factor, float shift, float* y, int64_t n);
// y += x
inline void AddTo(const float* x, float* y, int64_t n) { Apply(BinaryFunction::kAdd, y, x, y, n); }

}  // namespace fusionllm::kernels::cpu
