// Fills the placeholders that weigh the targets of a loss made of several terms (lib/opdag/target_weights.h): by the data alone, and so
// before the first pass of a step, or of an evaluation. Internal to lib/runtime. Reads the labels of the whole batch, or of the whole set,
// a first time; blocks as the source does; used by the stage's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/opdag/graph.h"
#include "lib/runtime/stage_executor.h"

namespace fusionllm::runtime {

class TargetWeights {
 public:
  // Both must outlive this.
  TargetWeights(const autodiff::TrainingGraph& training, BatchSource& source) : training_(training), source_(source) {}

  // One over the share of labels that count; 0 where none does. `weight`: a placeholder of opdag::kTargetWeightRole. `micro_batches`: of
  // the global batch. Errors: the source's.
  absl::StatusOr<float> OfStep(const opdag::Op& weight, int64_t step, int micro_batches);
  // Of a set's first `samples`.
  absl::StatusOr<float> OfEvaluation(const opdag::Op& weight, int64_t samples, int micro_batches);

 private:
  struct Known {
    int64_t of = -1;  // step, or samples
    float weight = 0;
  };
  // Labels of the micro-batch that count, and all of them.
  struct Labels {
    int64_t counted = 0, all = 0;
  };
  absl::StatusOr<Labels> Read(const opdag::Op& weight, bool evaluation, int64_t step, int micro_batch);

  const autodiff::TrainingGraph& training_;
  BatchSource& source_;
  std::map<std::string, Known> of_step_, of_evaluation_;  // by placeholder, the last that was asked for
};

}  // namespace fusionllm::runtime
