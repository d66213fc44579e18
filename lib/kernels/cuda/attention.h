// What the kernels of attention have in common. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "lib/kernels/cuda/element.h"
#include "lib/kernels/prepared_op.h"

namespace fusionllm::kernels::cuda {

struct AttentionExtents {
  int64_t batch, length, width, heads, size;
  bool causal;
  float scale;

  static AttentionExtents Of(int64_t batch, int64_t length, int64_t heads, int64_t size, bool causal) {
    return {batch, length, heads * size, heads, size, causal, static_cast<float>(1 / std::sqrt(static_cast<double>(size)))};
  }
  static AttentionExtents Of(const PreparedOp& op) {
    const int64_t width = op.in(0).dim(2) / 3, heads = op.attributes.Int("heads", 1);
    return Of(op.in(0).dim(0), op.in(0).dim(1), heads, width / heads, op.attributes.Bool("causal", true));
  }
  // Where row t of part 0 (q), 1 (k) or 2 (v) begins in qkv.
  __host__ __device__ int64_t Row(int64_t b, int64_t t, int part, int64_t head) const {
    return ((b * length + t) * 3 + part) * width + head * size;
  }
  // The same in y and dy.
  __host__ __device__ int64_t OutRow(int64_t b, int64_t t, int64_t head) const { return (b * length + t) * width + head * size; }
  // The same in statistics of rows, [batch, heads, length].
  __host__ __device__ int64_t Statistic(int64_t b, int64_t t, int64_t head) const { return (b * heads + head) * length + t; }
  __host__ __device__ bool Sees(int64_t query, int64_t key) const { return key < length && query < length && (!causal || key <= query); }
};

// dqkv, of what forward took and gave, in bf16 on tensor cores; heads of multiples of 16 up to 128. `delta`: room for a float of each row
// of each head. Asynchronous; addresses are the device's, aligned to 16 bytes.
cudaError_t AttentionGradOnTensorCores(cudaStream_t stream, const AttentionExtents& e, const Bf16* qkv, const Bf16* y, const float* lse,
                                       const Bf16* dy, float* delta, Bf16* dqkv);

}  // namespace fusionllm::kernels::cuda
