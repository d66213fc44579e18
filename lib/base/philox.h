// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3).
//
// A number is a pure function of (seed, name, index), so parameter initialisation and shuffling give the same bits on any number of
// stages, in any order, on any machine (docs/design/same-bits.md). Thread-safe: no state.
#pragma once

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

// One block of four 32-bit words for a 128-bit counter and a 64-bit key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// FNV-1a, 64 bits: stable across machines and releases, unlike std::hash.
uint64_t StableHash(absl::string_view text);

// A stream of numbers named by (seed, name); element `index` can be had directly.
class CounterRng {
 public:
  CounterRng(uint64_t seed, absl::string_view name);

  uint32_t Uint32(uint64_t index) const;
  // Uniform in [0, 1), 24 bits.
  float Uniform(uint64_t index) const;
  // Standard normal by Box-Muller; index i uses words 2i and 2i + 1 of the stream.
  float Normal(uint64_t index) const;
  // Uniform in [0, bound), bound > 0, without modulo bias beyond 2^-32.
  uint64_t Below(uint64_t index, uint64_t bound) const;

 private:
  std::array<uint32_t, 2> key_;
  uint64_t stream_;
};

}  // namespace fusionllm::base
