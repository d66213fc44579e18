// Per-channel vector code over a block of rows of `channels` floats (NHWC images seen as [pixels, channels]), dispatched at run time.
//
// Sums run row by row, so they depend on values and block boundaries alone. Thread-safe.
#pragma once

#include <cstdint>

namespace fusionllm::kernels::cpu {

// sum[c] += x[r][c]
void AddRows(const float* x, int64_t rows, int64_t channels, float* sum);
// sum[c] += (x[r][c] - mean[c])^2
void AddCenteredSquares(const float* x, const float* mean, int64_t rows, int64_t channels, float* sum);
// sum_dy[c] += dy, sum_product[c] += dy (x - mean)
void AddGradientSums(const float* x, const float* dy, const float* mean, int64_t rows, int64_t channels, float* sum_product, float* sum_dy);
// y = (x - mean) factor + shift
void NormalizeRows(const float* x, const float* mean, const float* factor, const float* shift, int64_t rows, int64_t channels, float* y);
// dx = factor dy + slope (x - mean) + shift
void CombineRows(const float* x, const float* dy, const float* mean, const float* factor, const float* slope, const float* shift,
                 int64_t rows, int64_t channels, float* dx);

}  // namespace fusionllm::kernels::cpu
