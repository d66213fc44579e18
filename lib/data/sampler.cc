#include "lib/data/sampler.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"

namespace fusionllm::data {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 61;
// Four rounds make a pseudorandom permutation of a large domain (Luby & Rackoff, SIAM J. Comput. 17(2), 1988); small domains mix worse, and
// a round costs some 20 ns.
constexpr uint32_t kRounds = 8;

std::array<uint32_t, 2> OrderKey(uint64_t seed) {
  // Apart from other streams that take the job's seed as their key.
  const uint64_t key = seed ^ base::StableHash("data order");
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

}  // namespace

absl::StatusOr<Sampler> Sampler::Create(int64_t samples, uint64_t seed) {
  if (samples < 1 || samples > kMaxSamples) return absl::InvalidArgumentError(absl::StrCat("cannot draw from ", samples, " samples"));
  return Sampler(samples, seed);
}

Sampler::Sampler(int64_t samples, uint64_t seed)
    : samples_(samples),
      half_bits_(std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(samples - 1)) + 1) / 2)),
      key_(OrderKey(seed)) {}

// A balanced Feistel network: a bijection of [0, 2^(2 half_bits)) whatever the round function is.
uint64_t Sampler::Permute(uint64_t value, uint64_t epoch) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const auto words =
        base::Philox4x32({static_cast<uint32_t>(right), round, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)}, key_);
    const uint64_t mixed = left ^ (words[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

int64_t Sampler::SampleAt(int64_t position) const {
  const auto epoch = static_cast<uint64_t>(position / samples_);
  auto value = static_cast<uint64_t>(position % samples_);
  // Cycle walking: following the permutation's cycle until it re-enters [0, samples) restricts the bijection to that range. The domain is
  // less than four times as large (except for one to three samples), so it takes fewer than four tries on average.
  do {
    value = Permute(value, epoch);
  } while (value >= static_cast<uint64_t>(samples_));
  return static_cast<int64_t>(value);
}

}  // namespace fusionllm::data
