// Losses of a step's micro-batches on the stage that owns the loss, which a device may only have after a while, and their sums.
// Internal to lib/runtime. Blocks in Settle; used by the stage's thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/opdag/graph.h"
#include "lib/tensor/memory.h"

namespace fusionllm::runtime {

// Over micro-batches: the share of each one's targets that count, and its mean loss, times that share where the loss is itself a
// cross_entropy (docs/design/adr/0035).
struct LossSums {
  double loss = 0, counted = 0;
};

// The mean loss of all micro-batches, `micro_batches` of them, or parts of such.
double MeanLoss(const autodiff::TrainingGraph& training, const LossSums& sums, double micro_batches);

// The op that makes the loss of the graph.
const opdag::Op& LossOpOf(const autodiff::TrainingGraph& training);
// Targets of a micro-batch, of all cross_entropy ops of the loss.
double TargetsOf(const autodiff::TrainingGraph& training);
// The share of a micro-batch's targets that count, of what each of target_ops has reported of its own, rounded to a float: exact again,
// since targets are whole. 1 where there are none.
double CountedShare(const autodiff::TrainingGraph& training, const std::vector<float>& rounded);
// The number of a copy. Blocks. Errors: the copy's.
absl::StatusOr<float> AwaitScalar(tensor::PendingCopy& copy);

// A micro-batch of an evaluation.
struct EvaluatedMicroBatch {
  float loss = 0;
  double counted = 1;  // share of its targets
  float correct = 0;   // targets; 0 where the loss is made of none, or of several cross_entropy ops
};
// By what `scalar_after` gives of scalars of the pass that has run. Blocks for them. Errors: its own.
absl::StatusOr<EvaluatedMicroBatch> EvaluatedOf(
    const autodiff::TrainingGraph& training,
    const std::function<absl::StatusOr<std::unique_ptr<tensor::PendingCopy>>(opdag::ValueId)>& scalar_after);

class StepLosses {
 public:
  explicit StepLosses(const autodiff::TrainingGraph& training) : training_(training) {}

  void Begin();  // another step
  // In the order of micro-batches. `counted`: of each of target_ops.
  void Add(int micro_batch, std::unique_ptr<tensor::PendingCopy> loss, std::vector<std::unique_ptr<tensor::PendingCopy>> counted);

  struct NotFinite {
    int micro_batch = 0;
    float loss = 0;
  };
  // Sums the losses of micro-batches up to `last`, and stops at the first that is NaN or infinite, which it returns. Blocks for copies.
  // Errors: the copies'.
  absl::StatusOr<std::optional<NotFinite>> Settle(int last);

  // Of those that are settled; of all replicas once ReplicaGroup::AllReduceGradients has replaced them.
  LossSums& sums() { return sums_; }

 private:
  struct Pending {
    int micro_batch = 0;
    std::unique_ptr<tensor::PendingCopy> loss;
    std::vector<std::unique_ptr<tensor::PendingCopy>> counted;
  };
  const autodiff::TrainingGraph& training_;
  std::deque<Pending> pending_;
  LossSums sums_;
};

}  // namespace fusionllm::runtime
