// The k elements of greatest magnitude, exactly: ties go to the lower index, so that every machine and vector width selects the same set.
//
// Cost: a sampled threshold and one compaction pass over the input (compression-and-sync recipe: every (n/m)-th cache line, threshold at
// sample rank r + 3.5·√r + 2); the threshold of the last call, kept in the scratch, replaces the sample when it still fits. Inputs on which
// a threshold fails (constants, ties, few non-zeros, unlucky samples, n < 8192) take an exact selection by histograms over the whole input.
// Pure but for the scratch; one scratch serves one caller at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace fusionllm::compression {

struct SelectionScratch {
  std::vector<uint32_t> indices;  // result: strictly increasing
  std::vector<float> values;      // result: values[i] is the input at indices[i]
  uint32_t last_threshold = 0;    // magnitude of the least value kept by the last call; 0: none
  std::vector<uint32_t> work;
  int64_t radix_selections = 0;  // how often the threshold did not do, for tests and benchmarks
};

// Leaves the selection in scratch->indices and scratch->values, both of size k. k <= values.size() <= kMaxElements is the caller's duty.
// InvalidArgument names the first element that is NaN, infinite or beyond kMaxMagnitude.
absl::Status SelectTopK(std::span<const float> values, size_t k, SelectionScratch* scratch);

// The error of the lossy codecs for values[index].
absl::Status UnencodableError(std::span<const float> values, size_t index);
absl::Status UnencodableError(size_t index, float value);

}  // namespace fusionllm::compression
