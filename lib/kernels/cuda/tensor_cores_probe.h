// Kernels by which cuda_tensor_cores_test.cc looks at tensor_cores.h and attention_tiles.h. Addresses are the device's; asynchronous.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fusionllm::kernels::cuda {

// What each lane gets of four matrices [32, 8] in bf16, as LoadMatrices and LoadMatricesTransposed give it: [32, 4] words each.
cudaError_t ProbeLoads(cudaStream_t stream, const uint16_t* matrices, uint32_t* plain, uint32_t* transposed);

// scores = left * right^T in fp32 [128, 64], and bf16 products = bf16(scores) * right [rows, size], of bf16 left [rows, size] and right
// [others, size]; rows at most 128, others at most 64, the rest as if 0. `head` is 64 or 128: components that tiles have.
cudaError_t ProbeTiles(cudaStream_t stream, int head, const uint16_t* left, int rows, const uint16_t* right, int others, int size,
                       float* scores, uint16_t* products);

// What a thread finds where it copies two groups of 16 bytes and then 4: `early` once the first group has arrived, `late` when all have.
// Each has [12] words, for the three copies. There is nothing to copy in words 4 to 7.
cudaError_t ProbeCopies(cudaStream_t stream, const uint32_t* from, uint32_t* early, uint32_t* late);

// 2^x for each of `count` numbers, at most 1024.
cudaError_t ProbeExponentials(cudaStream_t stream, const float* x, int count, float* y);

}  // namespace fusionllm::kernels::cuda
