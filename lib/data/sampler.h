// The order in which training visits samples: a seeded permutation for each epoch, computed position by position.
//
// The order is a pure function of (seed, samples, epoch), so any process computes any batch by itself, and the whole state of the data
// pipeline is one number. No memory grows with the dataset. Immutable, so safe to use from several threads.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"

namespace fusionllm::data {

// Where training stands; part of a checkpoint. Counted in samples, not batches, so that a run may resume with another batch size.
struct DataCursor {
  int64_t samples_consumed = 0;
  bool operator==(const DataCursor&) const = default;
};

class Sampler {
 public:
  // samples in 1 .. 2^61; InvalidArgument otherwise.
  static absl::StatusOr<Sampler> Create(int64_t samples, uint64_t seed);

  // The sample at a position of the endless sequence of epochs; position >= 0. Batches are consecutive positions: one that reaches the end
  // of an epoch goes on in the next. Constant time on average (at most four expected rounds).
  int64_t SampleAt(int64_t position) const;

  int64_t samples() const { return samples_; }

 private:
  Sampler(int64_t samples, uint64_t seed);
  uint64_t Permute(uint64_t value, uint64_t epoch) const;

  int64_t samples_;
  int half_bits_;  // the permutation works on values of twice as many bits
  std::array<uint32_t, 2> key_;
};

}  // namespace fusionllm::data
