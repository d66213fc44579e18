// The order in which training visits samples: a seeded permutation for each epoch, computed position by position.
//
// The order is a pure function of (seed, samples, epoch), so any process computes any batch by itself, and the whole state of the data
// pipeline is one number. No memory grows with the dataset. Immutable, so safe to use from several threads.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fusionllm::data {

// Where training stands; part of a checkpoint. Counted in samples, not batches, so that a run may resume with another batch size.
struct DataCursor {
  int64_t samples_consumed = 0;
  bool operator==(const DataCursor&) const = default;
};

class BatchSampler {
 public:
  // samples in 1 .. 2^61, batch_size in 1 .. 2^24; InvalidArgument otherwise.
  static absl::StatusOr<BatchSampler> Create(int64_t samples, int64_t batch_size, uint64_t seed);

  // The sample at a position of the endless sequence of epochs; position >= 0. Constant time on average (at most four expected rounds).
  int64_t SampleAt(int64_t position) const;

  // The global batch that starts at the cursor: batch_size consecutive positions. A batch that reaches the end of an epoch continues in the
  // next one. InvalidArgument for a cursor below 0 or beyond 2^62.
  absl::StatusOr<std::vector<int64_t>> SampleIndices(DataCursor cursor) const;

  // The cursor after the batch at `cursor`.
  DataCursor Advance(DataCursor cursor) const { return {cursor.samples_consumed + batch_size_}; }

  // Epochs done, with the fraction of the current one.
  double Epoch(DataCursor cursor) const { return static_cast<double>(cursor.samples_consumed) / static_cast<double>(samples_); }

  int64_t samples() const { return samples_; }
  int64_t batch_size() const { return batch_size_; }

 private:
  BatchSampler(int64_t samples, int64_t batch_size, uint64_t seed);
  uint64_t Permute(uint64_t value, uint64_t epoch) const;

  int64_t samples_;
  int64_t batch_size_;
  int half_bits_;  // the permutation works on values of twice as many bits
  std::array<uint32_t, 2> key_;
};

// Batch `number` of a pass in file order, as evaluation does: the last batch may be shorter, later ones are empty. Arguments >= 0.
std::vector<int64_t> SequentialIndices(int64_t samples, int64_t batch_size, int64_t number);

}  // namespace fusionllm::data
