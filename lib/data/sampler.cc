#include "lib/data/sampler.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"

namespace fusionllm::data {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 61;
constexpr int64_t kMaxBatch = int64_t{1} << 24;
constexpr int64_t kMaxCursor = int64_t{1} << 62;
// Four rounds make a pseudorandom permutation of a large domain (Luby & Rackoff, SIAM J. Comput. 17(2), 1988); small domains mix worse, and
// a round costs some 20 ns.
constexpr uint32_t kRounds = 8;

std::array<uint32_t, 2> OrderKey(uint64_t seed) {
  // Apart from other streams that take the job's seed as their key.
  const uint64_t key = seed ^ base::StableHash("data order");
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

}  // namespace

absl::StatusOr<BatchSampler> BatchSampler::Create(int64_t samples, int64_t batch_size, uint64_t seed) {
  if (samples < 1 || samples > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat("cannot draw batches from ", samples, " samples"));
  }
  if (batch_size < 1 || batch_size > kMaxBatch) {
    return absl::InvalidArgumentError(absl::StrCat("the global batch size is ", batch_size, " but must be in 1 .. ", kMaxBatch));
  }
  return BatchSampler(samples, batch_size, seed);
}

BatchSampler::BatchSampler(int64_t samples, int64_t batch_size, uint64_t seed)
    : samples_(samples),
      batch_size_(batch_size),
      half_bits_(std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(samples - 1)) + 1) / 2)),
      key_(OrderKey(seed)) {}

// A balanced Feistel network: a bijection of [0, 2^(2 half_bits)) whatever the round function is.
uint64_t BatchSampler::Permute(uint64_t value, uint64_t epoch) const {
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

int64_t BatchSampler::SampleAt(int64_t position) const {
  const auto epoch = static_cast<uint64_t>(position / samples_);
  auto value = static_cast<uint64_t>(position % samples_);
  // Cycle walking: following the permutation's cycle until it re-enters [0, samples) restricts the bijection to that range. The domain is
  // less than four times as large (except for one to three samples), so it takes fewer than four tries on average.
  do {
    value = Permute(value, epoch);
  } while (value >= static_cast<uint64_t>(samples_));
  return static_cast<int64_t>(value);
}

absl::StatusOr<std::vector<int64_t>> BatchSampler::SampleIndices(DataCursor cursor) const {
  if (cursor.samples_consumed < 0 || cursor.samples_consumed > kMaxCursor) {
    return absl::InvalidArgumentError(absl::StrCat("the data cursor ", cursor.samples_consumed, " is out of range"));
  }
  std::vector<int64_t> indices(static_cast<size_t>(batch_size_));
  for (int64_t i = 0; i < batch_size_; ++i) indices[static_cast<size_t>(i)] = SampleAt(cursor.samples_consumed + i);
  return indices;
}

std::vector<int64_t> SequentialIndices(int64_t samples, int64_t batch_size, int64_t number) {
  std::vector<int64_t> indices;
  if (batch_size < 1 || number > samples / batch_size) return indices;
  const int64_t first = number * batch_size;
  for (int64_t i = first; i < std::min(first + batch_size, samples); ++i) indices.push_back(i);
  return indices;
}

}  // namespace fusionllm::data
