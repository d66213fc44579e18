// Reductions over one row of n floats and the row-wise kernels built on them, dispatched at run time to the best instruction set.
//
// Sums run in a fixed order of lanes, so a row's result depends on its values alone. Thread-safe. n >= 1.
#pragma once

#include <cstdint>

namespace fusionllm::kernels::cpu {

float RowMax(const float* x, int64_t n);
float RowDot(const float* a, const float* b, int64_t n);
// Sum of e^(x - offset) for x <= offset + 88; writes the terms to y unless it is nullptr (y may be x).
float RowExp(const float* x, float offset, float* y, int64_t n);
// ds = p (dp - delta) scale; ds may be dp.
void SoftmaxRowGrad(const float* p, const float* dp, float delta, float scale, float* ds, int64_t n);

// y = (x - mean) rstd weight + bias
void LayerNormRow(const float* x, const float* weight, const float* bias, float epsilon, float* y, float* mean, float* rstd, int64_t n);
// dx from one row (unless nullptr); adds the row's terms to dweight and dbias.
void LayerNormRowGrad(const float* x, const float* dy, const float* weight, float mean, float rstd, float* dx, float* dweight, float* dbias,
                      int64_t n);

}  // namespace fusionllm::kernels::cpu
