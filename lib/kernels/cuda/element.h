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

// As many as the widest loads and stores take.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T of[kSize];
};

template <typename T>
__device__ inline float4 Floats(Quad<T> q) {
  return make_float4(q.x, q.y, q.z, q.w);
}
template <typename T>
__device__ inline float4 LoadQuad(const T* row, int64_t quad) {
  return Floats(reinterpret_cast<const Quad<T>*>(row)[quad]);
}
template <typename T>
__device__ inline void StoreQuad(T* row, int64_t quad, float4 v) {
  reinterpret_cast<Quad<T>*>(row)[quad] = Quad<T>{v.x, v.y, v.z, v.w};
}
// As it is after it was written and read again.
template <typename T>
__device__ inline float Stored(float x) {
  return static_cast<float>(static_cast<T>(x));
}
// `function` of the four elements at each place.
template <typename Function, typename... Quads>
__device__ inline float4 OfEach(Function function, Quads... q) {
  return make_float4(function(q.x...), function(q.y...), function(q.z...), function(q.w...));
}
template <typename T>
__device__ inline float4 AsStored(float4 v) {
  return make_float4(Stored<T>(v.x), Stored<T>(v.y), Stored<T>(v.z), Stored<T>(v.w));
}
// Added as by another kernel: plain additions would become one instruction with a product before them, which is rounded once.
template <typename T>
__device__ inline float4 AddStored(float4 a, float4 b) {
  return make_float4(Stored<T>(__fadd_rn(a.x, b.x)), Stored<T>(__fadd_rn(a.y, b.y)), Stored<T>(__fadd_rn(a.z, b.z)),
                     Stored<T>(__fadd_rn(a.w, b.w)));
}

// Of one number, as kernels alone and kernels for two ops have to do it alike.
__device__ inline float Relu(float x) { return x > 0 || isnan(x) ? x : 0.0f; }
__device__ inline float ReluGradient(float y, float dy) { return y > 0 ? dy : 0.0f; }

}  // namespace fusionllm::kernels::cuda
