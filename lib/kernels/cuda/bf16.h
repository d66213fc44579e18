// Casts of whole tensors on the device, with the bits of lib/tensor/bf16.h.
//
// Asynchronous, in the order of the stream. Addresses are the device's, aligned to 16 bytes; stretches do not overlap.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fusionllm::kernels::cuda {

cudaError_t UpcastBf16(cudaStream_t stream, const uint16_t* from, float* to, int64_t count);
cudaError_t RoundToBf16(cudaStream_t stream, const float* from, uint16_t* to, int64_t count);
// To the floats that UpcastBf16 would make of RoundToBf16's result.
cudaError_t RoundFloatsToBf16(cudaStream_t stream, const float* from, float* to, int64_t count);

}  // namespace fusionllm::kernels::cuda
