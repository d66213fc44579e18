// lib/compression/quantize.h on the device: the same bits, from casts and block quantizers that read each value once.
//
// Addresses are the device's; everything is asynchronous, in the order of the stream. 16-bit values and scales are aligned to 2 bytes. The
// greatest magnitude of what is encoded is added to *greatest by maximum; 0 before.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fusionllm::compression::cuda {

cudaError_t GreatestMagnitude(cudaStream_t stream, const float* values, int64_t n, uint32_t* greatest);
// With the exponent that *greatest, of these values, asks for: HalfExponent's.
cudaError_t FloatToHalf(cudaStream_t stream, const float* values, int64_t n, const uint32_t* greatest, std::byte* out);
cudaError_t FloatToBfloat(cudaStream_t stream, const float* values, int64_t n, std::byte* out, uint32_t* greatest);
cudaError_t QuantizeInt8(cudaStream_t stream, const float* values, int64_t n, std::byte* scales, std::byte* codes, uint32_t* greatest);
cudaError_t QuantizeInt4(cudaStream_t stream, const float* values, int64_t n, std::byte* scales, std::byte* codes, uint32_t* greatest);

// corrected[i] = values[i] + residual[i], or values[i] where residual is null: for error feedback.
cudaError_t Correct(cudaStream_t stream, const float* values, const float* residual, int64_t n, float* corrected);

// The first of the values beyond what can be encoded, if the greatest of them is.
struct Verdict {
  uint32_t greatest = 0;  // magnitude; what the functions above add to
  uint32_t found = 0;     // 1 where there is such a value:
  uint32_t index = 0;     // its number, or indices[that] where there are indices
  float value = 0;
};
// After `verdict` has the greatest magnitude of these values.
cudaError_t FindUnencodable(cudaStream_t stream, const float* values, const uint32_t* indices, int64_t n, Verdict* verdict);

// out[i] = what was decoded, or minuend[i] less that where there is a minuend, which may be `out`. Nothing is checked.
cudaError_t HalfToFloat(cudaStream_t stream, const std::byte* halves, int64_t n, float factor, const float* minuend, float* out);
// With the factor that FloatToHalf took for *greatest.
cudaError_t HalfToFloat(cudaStream_t stream, const std::byte* halves, int64_t n, const uint32_t* greatest, const float* minuend,
                        float* out);
cudaError_t BfloatToFloat(cudaStream_t stream, const std::byte* bfloats, int64_t n, const float* minuend, float* out);
cudaError_t DequantizeInt8(cudaStream_t stream, const std::byte* scales, const std::byte* codes, int64_t n, const float* minuend,
                           float* out);
cudaError_t DequantizeInt4(cudaStream_t stream, const std::byte* scales, const std::byte* codes, int64_t n, const float* minuend,
                           float* out);

}  // namespace fusionllm::compression::cuda
