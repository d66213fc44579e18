#include "lib/collective/deferred_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::collective {

absl::Status DeferredCommunicator::Meet(const MeetFunction& meet) {
  {
    const base::MutexLock lock(mutex_);
    if (met_ != nullptr) return absl::FailedPreconditionError(absl::StrCat(group_rank().ToString(), " has met the others before"));
    if (!aborted_.ok()) return aborted_;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> met = meet(stop_.get_token());
  const base::MutexLock lock(mutex_);
  if (!aborted_.ok()) return aborted_;  // which is why, if that failed
  FUSIONLLM_RETURN_IF_ERROR(met.status());
  if ((*met)->group_rank().ToString() != group_rank().ToString() || &(*met)->memory() != &memory_) {
    return absl::InvalidArgumentError(absl::StrCat(group_rank().ToString(), " met as ", (*met)->group_rank().ToString(),
                                                   &(*met)->memory() == &memory_ ? "" : " with tensors elsewhere"));
  }
  met_ = *std::move(met);
  return absl::OkStatus();
}

void DeferredCommunicator::Leave() {
  std::unique_ptr<Communicator> left;
  base::UniqueLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !aborting_; });
  left = std::move(met_);
}

absl::StatusOr<Communicator*> DeferredCommunicator::Met() {
  const base::MutexLock lock(mutex_);
  if (!aborted_.ok() && met_ == nullptr) return aborted_;
  if (met_ == nullptr) return absl::FailedPreconditionError(absl::StrCat(group_rank().ToString(), " has not met the others"));
  return met_.get();
}

absl::Status DeferredCommunicator::AllReduce(std::span<const tensor::TensorView> tensors) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const met, Met());
  return met->AllReduce(tensors);
}

absl::Status DeferredCommunicator::ReduceScatter(std::span<const Exchange> exchanges) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const met, Met());
  return met->ReduceScatter(exchanges);
}

absl::Status DeferredCommunicator::AllGather(std::span<const Exchange> exchanges) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const met, Met());
  return met->AllGather(exchanges);
}

absl::Status DeferredCommunicator::Broadcast(std::span<const tensor::TensorView> tensors, int root) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const met, Met());
  return met->Broadcast(tensors, root);
}

absl::Status DeferredCommunicator::Wait() {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const met, Met());
  return met->Wait();
}

void DeferredCommunicator::Abort(absl::Status why) {
  Communicator* met = nullptr;
  {
    const base::MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = why;
    met = met_.get();
    aborting_ = met != nullptr;
  }
  stop_.request_stop();
  if (met == nullptr) return;
  met->Abort(std::move(why));
  const base::MutexLock lock(mutex_);
  aborting_ = false;
  changed_.notify_all();
}

}  // namespace fusionllm::collective
