// Elements of tensors as kernels read and write them: they compute in fp32 whatever lies in memory, so a kernel for bf16 is its kernel for
// fp32 with another element type. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace fusionllm::kernels::cuda {

// bf16 with the conversions of lib/tensor/bf16.h, bit for bit; CUDA's own type makes other NaNs. Conversions are implicit, as CUDA's are,
// for kernels to read alike on either type.
struct Bf16 {
  uint16_t bits;

  Bf16() = default;
  __device__ Bf16(float x) : bits(RoundedBits(x)) {}                                                // NOLINT(google-explicit-constructor)
  __device__ operator float() const { return __uint_as_float(static_cast<uint32_t>(bits) << 16); }  // NOLINT(google-explicit-constructor)

  // To nearest, ties to even; a NaN stays one, made quiet.
  __device__ static uint16_t RoundedBits(float x) {
    const uint32_t word = __float_as_uint(x);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(word >> 16 | 0x40u);
    return static_cast<uint16_t>((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
};

// Four elements that are read or written at once, where they are aligned as a whole.
template <typename T>
struct alignas(4 * sizeof(T)) Quad {
  T x, y, z, w;
};

}  // namespace fusionllm::kernels::cuda
