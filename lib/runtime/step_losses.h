// Losses of a step's micro-batches on the stage that owns the loss, which a device may only have after a while, and their sums.
// Internal to lib/runtime. Blocks in Settle; used by the stage's thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/opdag/graph.h"
#include "lib/tensor/memory.h"

namespace fusionllm::runtime {

// Over micro-batches: the share of each one's targets that count, and its mean loss times that share (docs/adr/0035).
struct LossSums {
  double loss = 0, counted = 0;
  double Mean() const { return counted > 0 ? loss / counted : 0; }
};

// The op that makes the loss of the graph.
const opdag::Op& LossOpOf(const autodiff::TrainingGraph& training);
// Targets of a micro-batch, of a loss that counts them (TrainingGraph::counted).
double TargetsOf(const autodiff::TrainingGraph& training);
// The share that a kernel has told, rounded to a float: exact again, since targets are whole.
double CountedShare(const autodiff::TrainingGraph& training, float rounded);
// The number of a copy. Blocks. Errors: the copy's.
absl::StatusOr<float> Arrived(tensor::PendingCopy& copy);

class StepLosses {
 public:
  explicit StepLosses(const autodiff::TrainingGraph& training) : training_(training) {}

  void Begin();  // another step
  // In the order of micro-batches. `counted` is null where all targets count.
  void Add(int micro_batch, std::unique_ptr<tensor::PendingCopy> loss, std::unique_ptr<tensor::PendingCopy> counted);

  struct NotFinite {
    int micro_batch = 0;
    float loss = 0;
  };
  // Sums the losses of micro-batches up to `last`, and stops at the first that is no number, which it returns. Blocks for copies.
  // Errors: the copies'.
  absl::StatusOr<std::optional<NotFinite>> Settle(int last);

  // Of those that are settled; of all replicas once ReplicaGroup::AddUp has replaced them.
  LossSums& sums() { return sums_; }

 private:
  struct Pending {
    int micro_batch = 0;
    std::unique_ptr<tensor::PendingCopy> loss, counted;
  };
  const autodiff::TrainingGraph& training_;
  std::deque<Pending> pending_;
  LossSums sums_;
};

}  // namespace fusionllm::runtime
