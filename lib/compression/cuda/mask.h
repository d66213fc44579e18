// lib/compression/mask.h on the device, where a mask is the ascending list of the indices kept: to and from the bytes of a message, and
// what the backward message of an edge needs of it.
//
// Addresses are the device's; everything is asynchronous, in the order of the stream. Bytes of masks are aligned to 4. What comes from a
// peer has been through Mask::Parse: counts add up, and no index lies beyond the tensor.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fusionllm::compression::cuda {

// The offset form of a mask of k indices out of n elements.
cudaError_t WriteOffsets(cudaStream_t stream, const uint32_t* indices, int64_t n, int64_t k, std::byte* out);

size_t MaskWorkspaceBytes(int64_t n);
// The indices of a mask in the form that its sizes ask for. A bitmap has room up to a multiple of 4 bytes; bits beyond n are ignored.
cudaError_t ReadMask(cudaStream_t stream, const std::byte* mask, int64_t n, int64_t k, std::byte* workspace, uint32_t* indices);

// kept[i] = dense[indices[i]]
cudaError_t Gather(cudaStream_t stream, const float* dense, const uint32_t* indices, int64_t k, float* kept);
// dense[indices[i]] = kept[i], every other element 0.
cudaError_t Scatter(cudaStream_t stream, const float* kept, const uint32_t* indices, int64_t k, int64_t n, float* dense);
// dense[indices[i]] -= kept[i]
cudaError_t SubtractKept(cudaStream_t stream, const float* kept, const uint32_t* indices, int64_t k, float* dense);

}  // namespace fusionllm::compression::cuda
