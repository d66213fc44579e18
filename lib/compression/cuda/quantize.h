// lib/compression/quantize.h on the device: the same bits, from casts and block quantizers that read each value once.
//
// Addresses are the device's; everything is asynchronous, in the order of the stream. 16-bit values and scales are aligned to 2 bytes. The
// greatest magnitude of what is encoded is added to *max_magnitude by maximum; 0 before.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "lib/compression/codec_kind.h"

namespace fusionllm::compression::cuda {

// The kernels of a DenseCodec (lib/compression/registry.h).
struct DeviceCodec {
  Layout layout;
  // Writes its ValueBytes.
  cudaError_t (*encode)(cudaStream_t stream, const float* values, int64_t n, std::byte* out, uint32_t* max_magnitude);
  // out[i] = what was decoded, or minuend[i] less that where there is a minuend, which may be `out`. The header's parameter is that of
  // values of *max_magnitude where there is one, else `parameter`. Nothing is checked.
  cudaError_t (*decode)(cudaStream_t stream, const std::byte* in, int64_t n, int32_t parameter, const uint32_t* max_magnitude,
                        const float* minuend, float* out);
};
// Null where values travel as they are.
const DeviceCodec* FindDeviceCodec(Layout layout);

// corrected[i] = values[i] + residual[i], or values[i] where residual is null: for error feedback.
cudaError_t Correct(cudaStream_t stream, const float* values, const float* residual, int64_t n, float* corrected);

// The first of the values beyond what can be encoded, if the greatest of them is.
struct UnencodableValue {
  uint32_t max_magnitude = 0;  // magnitude; what the functions above add to
  uint32_t found = 0;          // 1 where there is such a value:
  uint32_t index = 0;          // its number, or indices[that] where there are indices
  float value = 0;
};
// After `unencodable` has the greatest magnitude of these values.
cudaError_t FindUnencodable(cudaStream_t stream, const float* values, const uint32_t* indices, int64_t n, UnencodableValue* unencodable);

}  // namespace fusionllm::compression::cuda
