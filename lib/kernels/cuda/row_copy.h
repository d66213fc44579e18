// Rows of bf16 matrices, put further apart or closer together.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fusionllm::kernels::cuda {

// to[row * to_leading + i] = from[row * from_leading + i] for i below `width`; what lies between rows is left alone. Asynchronous.
// Addresses are the device's.
cudaError_t CopyRows(cudaStream_t stream, const uint16_t* from, int64_t from_leading, uint16_t* to, int64_t to_leading, int64_t rows,
                     int64_t width);

}  // namespace fusionllm::kernels::cuda
