// How an evaluation is cut into forward passes, so that each sample of a set weighs the same whatever the size of a micro-batch is. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace fusionllm::runtime {

// What one forward pass takes: `samples` of the set from `first` on, each as often as fills the micro-batch.
struct EvaluationPass {
  int64_t first = 0;
  int64_t samples = 0;  // a divisor of the micro-batch's size
};

// The pass of this index, from 0, over a set: whole micro-batches as long as there are enough samples, then ever smaller parts of one.
// nullopt: the set has ended. `micro_batch_size` is at least 1.
std::optional<EvaluationPass> EvaluationPassAt(int64_t set_samples, int64_t micro_batch_size, int64_t index);

// The samples of that pass, micro_batch_size of them. Errors: Internal behind the end of the set.
absl::StatusOr<std::vector<int64_t>> SamplesOfPass(int64_t set_samples, int64_t micro_batch_size, int64_t index);

}  // namespace fusionllm::runtime
