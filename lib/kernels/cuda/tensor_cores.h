// What a warp asks of tensor cores, and how their factors come to it: products of 16 x 16 by 16 x 8 bf16 with fp32 sums, loads of 8 x 8
// matrices from shared memory, and copies to shared memory that go on beside other work. Compute capability 8.0 and later. For .cu files.
//
// Names of registers' places are the PTX ISA's ("Matrix multiply-accumulate operation using mma instruction", "Warp-level matrix load
// instruction: ldmatrix", "cp.async"; release 9.0). Lane l is of group l / 4 and has place l % 4 in it. In words two bf16 lie side by side,
// the first in the low half. All lanes of a warp call together but for copies, which are each thread's own.
//
// Addresses of shared memory are 32 bits wide, as the instructions take them. Where there is no nvcc, emulated/tensor_cores.cc has the
// same registers by way of exchanges in the warp, copies that arrive when they are waited for, and aborts on addresses that a card refuses.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "lib/kernels/cuda/element.h"
#if !defined(__CUDACC__)
#include "lib/kernels/cuda/emulated/tensor_cores.h"
#endif

namespace fusionllm::kernels::cuda {

// Four registers of a lane: a left factor (16 x 16), two right factors (16 x 8, words 0-1 and 2-3), or 16 bytes of anything.
struct alignas(16) Words {
  uint32_t words[4];
};

// What a thread gives to another as a factor: both rounded to nearest even, low in the low half.
__device__ inline uint32_t PackBf16(float low, float high) {
#if defined(__CUDACC__)
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return static_cast<uint32_t>(Bf16::RoundedBits(high)) << 16 | Bf16::RoundedBits(low);
#endif
}
__device__ inline float LowOf(uint32_t word) { return __uint_as_float(word << 16); }
__device__ inline float HighOf(uint32_t word) { return __uint_as_float(word & 0xffff0000u); }

// 2^x to 2 units in the last place; what is below 2^-126 is 0.
__device__ inline float FastExp2(float x) {
#if defined(__CUDACC__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// sums += left * right: left 16 x 16 (row = group or group + 8 in words 0 and 2 or 1 and 3; columns 2 place, 2 place + 1, and 8 more in
// words 2 and 3), right 16 x 8 (rows as the columns of left, column = group), sums 16 x 8 (rows group and group + 8, columns 2 place and
// 2 place + 1: sums[0], [1] and sums[2], [3]).
__device__ inline void MultiplyAdd(float (&sums)[4], const Words& left, uint32_t right_0, uint32_t right_1) {
#if defined(__CUDACC__)
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(left.words[0]), "r"(left.words[1]), "r"(left.words[2]), "r"(left.words[3]), "r"(right_0), "r"(right_1));
#else
  emulated::MultiplyAdd(sums, left.words, right_0, right_1);
#endif
}

__device__ inline uint32_t SharedAddress(const void* shared) {
#if defined(__CUDACC__)
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
#else
  return emulated::SharedAddress(shared);
#endif
}

// Four matrices of 8 rows of 8 bf16: lane l gives the address of row l % 8 of matrix l / 8, aligned to 16 bytes, and gets in word m columns
// 2 place and 2 place + 1 of row group of matrix m.
__device__ inline Words LoadMatrices(uint32_t address) {
  Words to;
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
               : "r"(address));
#else
  emulated::LoadMatrices(address, /*transposed=*/false, to.words);
#endif
  return to;
}
// The same of the transposed matrices: rows 2 place and 2 place + 1 of column group.
__device__ inline Words LoadMatricesTransposed(uint32_t address) {
  Words to;
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
               : "r"(address));
#else
  emulated::LoadMatrices(address, /*transposed=*/true, to.words);
#endif
  return to;
}

// Begins to copy 16 or 4 bytes, aligned so, to shared memory; zeros, and nothing is read, where they are not `there`.
__device__ inline void Copy16Async(uint32_t to, const void* from, bool there) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
               : "memory");
#else
  emulated::CopyAsync(to, from, 16, there);
#endif
}
__device__ inline void Copy4Async(uint32_t to, const void* from, bool there) {
#if defined(__CUDACC__)
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
               : "memory");
#else
  emulated::CopyAsync(to, from, 4, there);
#endif
}
// Ends a group: what this thread began since the group before; it may be empty.
__device__ inline void CommitCopies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulated::CommitCopies();
#endif
}
// Until all of this thread's groups but the kLeft latest have arrived. Others see them after a barrier.
template <int kLeft>
__device__ inline void WaitForCopies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#else
  emulated::WaitForCopies(kLeft);
#endif
}

__device__ inline void StoreShared(uint32_t to, uint32_t word) {
#if defined(__CUDACC__)
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
#else
  emulated::CopyToShared(to, &word, sizeof(word));
#endif
}
__device__ inline Words LoadShared16(uint32_t from) {
  Words to;
#if defined(__CUDACC__)
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
               : "r"(from)
               : "memory");
#else
  emulated::CopyFromShared(&to, from, sizeof(to));
#endif
  return to;
}
__device__ inline float2 LoadShared2(uint32_t from) {
  float2 to;
#if defined(__CUDACC__)
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to.x), "=f"(to.y) : "r"(from) : "memory");
#else
  emulated::CopyFromShared(&to, from, sizeof(to));
#endif
  return to;
}

}  // namespace fusionllm::kernels::cuda
