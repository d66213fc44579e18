#include "lib/collective/deferred_communicator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::collective {

absl::Status DeferredCommunicator::Join(const JoinFunction& join) {
  {
    const base::MutexLock lock(mutex_);
    if (joined_ != nullptr) return absl::FailedPreconditionError(absl::StrCat(group_rank().ToString(), " has met the others before"));
    if (!aborted_.ok()) return aborted_;
  }
  absl::StatusOr<std::unique_ptr<Communicator>> joined = join(stop_.get_token());
  const base::MutexLock lock(mutex_);
  if (!aborted_.ok()) return aborted_;  // which is why, if that failed
  FUSIONLLM_RETURN_IF_ERROR(joined.status());
  if ((*joined)->group_rank().ToString() != group_rank().ToString() || &(*joined)->memory() != &memory_) {
    return absl::InvalidArgumentError(absl::StrCat(group_rank().ToString(), " met as ", (*joined)->group_rank().ToString(),
                                                   &(*joined)->memory() == &memory_ ? "" : " with tensors elsewhere"));
  }
  joined_ = *std::move(joined);
  return absl::OkStatus();
}

void DeferredCommunicator::Leave() {
  std::unique_ptr<Communicator> left;
  base::UniqueLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !aborting_; });
  left = std::move(joined_);
}

absl::StatusOr<Communicator*> DeferredCommunicator::Joined() {
  const base::MutexLock lock(mutex_);
  if (!aborted_.ok() && joined_ == nullptr) return aborted_;
  if (joined_ == nullptr) return absl::FailedPreconditionError(absl::StrCat(group_rank().ToString(), " has not met the others"));
  return joined_.get();
}

absl::Status DeferredCommunicator::AllReduce(std::span<const tensor::TensorView> tensors) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const joined, Joined());
  return joined->AllReduce(tensors);
}

absl::Status DeferredCommunicator::ReduceScatter(std::span<const Exchange> exchanges) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const joined, Joined());
  return joined->ReduceScatter(exchanges);
}

absl::Status DeferredCommunicator::AllGather(std::span<const Exchange> exchanges) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const joined, Joined());
  return joined->AllGather(exchanges);
}

absl::Status DeferredCommunicator::Broadcast(std::span<const tensor::TensorView> tensors, int root) {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const joined, Joined());
  return joined->Broadcast(tensors, root);
}

absl::Status DeferredCommunicator::Wait() {
  FUSIONLLM_ASSIGN_OR_RETURN(Communicator* const joined, Joined());
  return joined->Wait();
}

void DeferredCommunicator::Abort(absl::Status why) {
  Communicator* joined = nullptr;
  {
    const base::MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = why;
    joined = joined_.get();
    aborting_ = joined != nullptr;
  }
  stop_.request_stop();
  if (joined == nullptr) return;
  joined->Abort(std::move(why));
  const base::MutexLock lock(mutex_);
  aborting_ = false;
  changed_.notify_all();
}

}  // namespace fusionllm::collective
