#include "lib/runtime/replica_group.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::runtime {
namespace {

using tensor::DType;
using tensor::TensorView;

constexpr int kDecides = 0;  // the replica

// What stage 0 of replica 0 tells stage 0 of the others.
struct DecisionRecord {
  int64_t step;
  double norm;
  float loss;
  int32_t culprit;
  uint8_t stop, checkpoint;
  uint8_t unused[6];
};

TensorView Bytes(const tensor::MemoryBlock& block) { return {{DType::kU8, {static_cast<int64_t>(block.size())}}, block.data()}; }

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicaGroup>> ReplicaGroup::Create(const autodiff::TrainingGraph& training, const StageProgram& program,
                                                                   ParameterStore& store, tensor::Memory& memory, int replica, int replicas,
                                                                   collective::Communicator* communicator) {
  if (communicator == nullptr && replicas == 1 && replica == 0) {
    return std::unique_ptr<ReplicaGroup>(new ReplicaGroup(training, program, memory, nullptr));
  }
  if (communicator == nullptr || communicator->rank() != replica || communicator->size() != replicas) {
    return absl::InvalidArgumentError(absl::StrFormat("replica %d of %d with the communicator of %s", replica, replicas,
                                                      communicator == nullptr ? "none" : communicator->membership().ToString()));
  }
  if (&communicator->memory() != &memory) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the communicator of %s takes tensors of another device", communicator->membership().ToString()));
  }
  std::unique_ptr<ReplicaGroup> group(new ReplicaGroup(training, program, memory, communicator));
  for (const int use : program.local_uses) group->gradients_.push_back(store.use_gradient(use));
  for (const opdag::ParameterId id : program.parameters) {
    if (!training.graph.parameter(id).trainable) group->untrained_.push_back(store.parameter(id));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(group->loss_, memory.Allocate(sizeof(double)));
  FUSIONLLM_ASSIGN_OR_RETURN(group->losses_, memory.Allocate(sizeof(double) * static_cast<size_t>(replicas)));
  FUSIONLLM_ASSIGN_OR_RETURN(group->decision_, memory.Allocate(sizeof(DecisionRecord)));
  return group;
}

absl::Status ReplicaGroup::AddUp(double& loss_sum) {
  if (communicator_ == nullptr) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(communicator_->AllReduce(gradients_));
  if (!untrained_.empty()) FUSIONLLM_RETURN_IF_ERROR(communicator_->Broadcast(untrained_, kDecides));
  if (!program_.owns_loss) return communicator_->Wait();
  FUSIONLLM_RETURN_IF_ERROR(memory_.CopyIn(loss_.data(), &loss_sum, sizeof(loss_sum)));
  const collective::Exchange exchange[] = {{Bytes(loss_), Bytes(losses_)}};
  FUSIONLLM_RETURN_IF_ERROR(communicator_->AllGather(exchange));
  FUSIONLLM_RETURN_IF_ERROR(communicator_->Wait());
  std::vector<double> losses(static_cast<size_t>(communicator_->size()));
  FUSIONLLM_RETURN_IF_ERROR(memory_.CopyOut(losses.data(), losses_.data(), losses_.size()));
  loss_sum = 0;
  for (const double loss : losses) loss_sum += loss;
  return absl::OkStatus();
}

absl::StatusOr<StepDecision> ReplicaGroup::Follow(int64_t step, const StepDecision& own) {
  if (communicator_ == nullptr) return own;
  DecisionRecord record{.step = step,
                        .norm = own.norm,
                        .loss = own.loss,
                        .culprit = own.culprit,
                        .stop = own.stop,
                        .checkpoint = own.checkpoint,
                        .unused = {}};
  FUSIONLLM_RETURN_IF_ERROR(memory_.CopyIn(decision_.data(), &record, sizeof(record)));
  const TensorView view[] = {Bytes(decision_)};
  FUSIONLLM_RETURN_IF_ERROR(communicator_->Broadcast(view, kDecides));
  FUSIONLLM_RETURN_IF_ERROR(communicator_->Wait());
  FUSIONLLM_RETURN_IF_ERROR(memory_.CopyOut(&record, decision_.data(), sizeof(record)));
  if (record.step != step) {
    return absl::InternalError(absl::StrFormat("%s is at step %d, and replica %d at step %d", communicator_->membership().ToString(), step,
                                               kDecides, record.step));
  }
  if (record.culprit < opdag::kNone || record.culprit >= static_cast<int32_t>(training_.graph.parameters().size())) {
    return absl::InvalidArgumentError(absl::StrFormat("malformed step decision from replica %d", kDecides));
  }
  return StepDecision{
      .norm = record.norm, .loss = record.loss, .stop = record.stop != 0, .checkpoint = record.checkpoint != 0, .culprit = record.culprit};
}

}  // namespace fusionllm::runtime
