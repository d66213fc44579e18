// What the replicas of a stage do together at the end of a step: they add their gradients and the loss, and follow one decision.
// Internal to lib/runtime. Blocking; used by the stage's thread.
//
// A replica is a whole pipeline; its stages speak to each other as without replicas, and each stage with the same stage of the others
// through a Communicator. Every call is made by all replicas in each step, in this order: on each stage AllReduceGradients, after the last
// backward pass and before the uses of shared parameters are combined; then on stage 0 BroadcastDecision, after its stages have reported.
// Over slow links a step waits for two latencies of each hop between replicas, those of AllReduceGradients: replica 0 goes on when it has
// sent its decision. No replica waits in AllReduceGradients for a message of its own pipeline, nor do messages wait for anything but passes
// and AllReduceGradients, so there is no circle of waits.
//
// Why gradients are added use by use before uses are combined: two stages that share a parameter are two groups, whose sums may go in
// different orders. So both must combine the same terms, each the sum of one group; sums of combined gradients would be two sums of one
// thing, and the copies of the parameter would part.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/autodiff/training_graph.h"
#include "lib/collective/communicator.h"
#include "lib/runtime/parameter_store.h"
#include "lib/runtime/stage_program.h"
#include "lib/runtime/step_coordinator.h"
#include "lib/runtime/step_losses.h"
#include "lib/tensor/memory.h"

namespace fusionllm::runtime {

class ReplicaGroup {
 public:
  // `communicator` may be null where there is one replica; then nothing is done. All references, and the communicator, must outlive the
  // group. Errors: InvalidArgument for a communicator of other replicas or of another memory than the store's tensors; the memory's.
  static absl::StatusOr<std::unique_ptr<ReplicaGroup>> Create(const autodiff::TrainingGraph& training, const StageProgram& program,
                                                              ParameterStore& store, tensor::Memory& memory, int replica, int replicas,
                                                              collective::Communicator* communicator);

  // Replaces the use gradients of the stage by the sums over all replicas, in one call, and parameters that are not trained (running
  // statistics) by replica 0's; on the stage that owns the loss also those of losses, by the sums in the order of replicas whatever
  // order the gradients have. Errors: the communicator's.
  absl::Status AllReduceGradients(LossSums& losses);

  // On stage 0: replica 0's decision, for all. Errors: the communicator's; Internal for a replica 0 that is at another step,
  // or decides on what this one has not.
  absl::StatusOr<StepDecision> BroadcastDecision(int64_t step, const StepDecision& own);

 private:
  ReplicaGroup(const autodiff::TrainingGraph& training, const StageProgram& program, tensor::Memory& memory,
               collective::Communicator* communicator)
      : training_(training), program_(program), memory_(memory), communicator_(communicator) {}

  const autodiff::TrainingGraph& training_;
  const StageProgram& program_;
  tensor::Memory& memory_;
  collective::Communicator* const communicator_;  // null: one replica
  std::vector<tensor::TensorView> gradients_;     // by local use
  std::vector<tensor::TensorView> untrained_;
  tensor::MemoryBlock losses_;    // of each replica, two sums as kLossParts numbers each
  tensor::MemoryBlock decision_;  // a record
};

}  // namespace fusionllm::runtime
