// Sums over the rows of a matrix, in an order that depends on its shape alone: gradients of biases, of weights of layer norm.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fusionllm::kernels::cuda {

struct Bf16;  // element.h

size_t ColumnSumsWorkspaceBytes(int64_t rows, int64_t columns);

// sums[columns] = sum over rows of matrix[rows, columns] (+ sums where `accumulate`). All of the device; `workspace` aligned to 16 bytes.
cudaError_t SumColumns(cudaStream_t stream, const float* matrix, int64_t rows, int64_t columns, bool accumulate, void* workspace,
                       float* sums);
cudaError_t SumColumns(cudaStream_t stream, const Bf16* matrix, int64_t rows, int64_t columns, bool accumulate, void* workspace,
                       float* sums);

// As SumColumns, of sums that were made already.
cudaError_t TakeSums(cudaStream_t stream, const float* made, int64_t columns, bool accumulate, float* sums);

}  // namespace fusionllm::kernels::cuda
