#include "lib/runtime/replica_group.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::runtime {
namespace {

using tensor::DType;
using tensor::TensorView;

constexpr int kDecides = 0;  // the replica

// What stage 0 of replica 0 tells stage 0 of the others.
struct ReplicaDecision {
  int64_t step;
  DecisionRecord decision;
};

// Losses travel with the gradients, which saves a round over the slowest link: each replica's in a place of its own, where the others add
// zeros, so that every sum is exact in any order. A double goes as its bits, sixteen to a float.
constexpr size_t kLossParts = 4;
constexpr size_t kLossSums = 2;  // of LossSums
constexpr int kBitsOfAPart = 16;
void Split(double value, float* parts) {
  const auto bits = std::bit_cast<uint64_t>(value);
  for (size_t i = 0; i < kLossParts; ++i) parts[i] = static_cast<float>((bits >> (kBitsOfAPart * i)) & 0xffff);
}
double Join(const float* parts) {
  uint64_t bits = 0;
  for (size_t i = 0; i < kLossParts; ++i) bits |= static_cast<uint64_t>(parts[i]) << (kBitsOfAPart * i);
  return std::bit_cast<double>(bits);
}

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
                                                      communicator == nullptr ? "none" : communicator->group_rank().ToString()));
  }
  if (&communicator->memory() != &memory) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the communicator of %s takes tensors of another device", communicator->group_rank().ToString()));
  }
  std::unique_ptr<ReplicaGroup> group(new ReplicaGroup(training, program, memory, communicator));
  for (const int use : program.local_uses) group->gradients_.push_back(store.per_use_gradient(use));
  for (const opdag::ParameterId id : program.parameters) {
    if (!training.graph.parameter(id).trainable) group->untrained_.push_back(store.parameter(id));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(group->losses_, memory.Allocate(sizeof(float) * kLossParts * kLossSums * static_cast<size_t>(replicas)));
  FUSIONLLM_ASSIGN_OR_RETURN(group->decision_, memory.Allocate(sizeof(ReplicaDecision)));
  return group;
}

absl::Status ReplicaGroup::AllReduceGradients(LossSums& losses_of_all) {
  if (communicator_ == nullptr) return absl::OkStatus();
  const auto size = static_cast<size_t>(communicator_->size());
  std::vector<float> losses;
  std::vector<TensorView> sums = gradients_;
  if (program_.owns_loss) {
    losses.assign(size * kLossParts * kLossSums, 0);
    float* const own = losses.data() + static_cast<size_t>(communicator_->rank()) * kLossParts * kLossSums;
    Split(losses_of_all.loss, own);
    Split(losses_of_all.counted, own + kLossParts);
    FUSIONLLM_RETURN_IF_ERROR(memory_.CopyIn(losses_.data(), losses.data(), losses.size() * sizeof(float)));
    sums.push_back({{DType::kF32, {static_cast<int64_t>(losses.size())}}, losses_.data()});
  }
  FUSIONLLM_RETURN_IF_ERROR(communicator_->AllReduce(sums));
  if (!untrained_.empty()) FUSIONLLM_RETURN_IF_ERROR(communicator_->Broadcast(untrained_, kDecides));
  FUSIONLLM_RETURN_IF_ERROR(communicator_->Wait());
  if (!program_.owns_loss) return absl::OkStatus();
  FUSIONLLM_RETURN_IF_ERROR(memory_.CopyOut(losses.data(), losses_.data(), losses.size() * sizeof(float)));
  losses_of_all = {};
  for (size_t replica = 0; replica < size; ++replica) {
    const float* const parts = losses.data() + replica * kLossParts * kLossSums;
    losses_of_all.loss += Join(parts);
    losses_of_all.counted += Join(parts + kLossParts);
  }
  return absl::OkStatus();
}

absl::StatusOr<StepDecision> ReplicaGroup::BroadcastDecision(int64_t step, const StepDecision& own) {
  if (communicator_ == nullptr) return own;
  ReplicaDecision record{.step = step, .decision = RecordOf(own)};
  FUSIONLLM_RETURN_IF_ERROR(memory_.CopyIn(decision_.data(), &record, sizeof(record)));
  const TensorView view[] = {Bytes(decision_)};
  FUSIONLLM_RETURN_IF_ERROR(communicator_->Broadcast(view, kDecides));
  if (communicator_->rank() == kDecides) return own;  // nothing is to be waited for, and a latency saved
  FUSIONLLM_RETURN_IF_ERROR(communicator_->Wait());
  FUSIONLLM_RETURN_IF_ERROR(memory_.CopyOut(&record, decision_.data(), sizeof(record)));
  if (record.step != step) {
    return absl::InternalError(absl::StrFormat("%s is at step %d, and replica %d at step %d", communicator_->group_rank().ToString(), step,
                                               kDecides, record.step));
  }
  return DecisionOf(record.decision, training_, absl::StrCat("replica ", kDecides));
}

}  // namespace fusionllm::runtime
