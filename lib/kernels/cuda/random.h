// base::CounterRng on the device: the same numbers, bit for bit. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/strings/string_view.h"
#include "lib/base/philox.h"

namespace fusionllm::kernels::cuda {

// A stream of numbers named by (seed, name); see lib/base/philox.h, whose constants and rounds these are.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t stream = 0;

  static RandomStream Of(uint64_t seed, absl::string_view name) { return {seed, base::StableHash(name)}; }

  __device__ uint32_t Uint32(uint64_t index) const {
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    const uint64_t block = index / 4;
    uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
      const uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
      c0 = high1 ^ c1 ^ k0;
      c1 = low1;
      c2 = high0 ^ c3 ^ k1;
      c3 = low0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const uint64_t which = index % 4;
    return which == 0 ? c0 : which == 1 ? c1 : which == 2 ? c2 : c3;
  }
  // In [0, 1), 24 bits.
  __device__ float Uniform(uint64_t index) const { return static_cast<float>(Uint32(index) >> 8) * 5.9604644775390625e-08f; }
};

}  // namespace fusionllm::kernels::cuda
