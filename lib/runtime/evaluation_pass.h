// How an evaluation is cut into forward passes, so that each sample of a set weighs the same whatever the size of a micro-batch is, and how
// many of them stages have under way. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"

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

// How many samples an evaluation reads: those of the set (nullopt: it has no end), or of its first `batches` global batches of
// `global_batch_size` where they are given and the set is larger. Errors: FailedPrecondition where there is neither.
absl::StatusOr<int64_t> SamplesToEvaluate(std::optional<int64_t> set_samples, std::optional<int64_t> batches, int64_t global_batch_size);

// The lowest stage that reads data: it says how much of them an evaluation has. -1: none reads any. `stage_of_op`: by op id of the training
// graph.
int LowestReader(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op);

// Micro-batches of an evaluation that may be under way between stages: twice as many, since a window is counted when all of it has come to
// the loss (StepCoordinator::AwaitEvaluationWindow). As many as keep what a stage holds within 128 MiB, but no fewer than there are stages.
// The same on every stage. `stage_of_op`: by op id of the training graph.
int EvaluationWindow(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op, int stages);

}  // namespace fusionllm::runtime
