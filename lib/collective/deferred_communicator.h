// A communicator whose group meets later than it is made: what uses it can be built before the other ranks are there to be met, and
// who must be able to end it has something to end from the first moment on.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/collective/communicator.h"

namespace fusionllm::collective {

class DeferredCommunicator final : public Communicator {
 public:
  // `memory`: where the tensors of the group's communicator will have to live; must outlive this one.
  DeferredCommunicator(GroupRank group_rank, tensor::Memory& memory) : Communicator(std::move(group_rank)), memory_(memory) {}

  // `join` makes the communicator, and gives up when the token says so. Once, on the thread that makes the calls; blocks as long as
  // `join` does. Errors: join's; Abort's, where it was called before or meanwhile; InvalidArgument for a communicator of another group or
  // rank or memory.
  using JoinFunction = std::function<absl::StatusOr<std::unique_ptr<Communicator>>(std::stop_token stop)>;
  absl::Status Join(const JoinFunction& join);
  // Lets the group's communicator go, on the thread that makes the calls; what is called later fails. Waits for an Abort that is under way
  // on another thread.
  void Leave();

  tensor::Memory& memory() const override { return memory_; }
  // Before Join: FailedPrecondition.
  absl::Status AllReduce(std::span<const tensor::TensorView> tensors) override;
  absl::Status ReduceScatter(std::span<const Exchange> exchanges) override;
  absl::Status AllGather(std::span<const Exchange> exchanges) override;
  absl::Status Broadcast(std::span<const tensor::TensorView> tensors, int root) override;
  absl::Status Wait() override;
  void Abort(absl::Status why) override;

 private:
  absl::StatusOr<Communicator*> Joined();

  tensor::Memory& memory_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Communicator> joined_ ABSL_GUARDED_BY(mutex_);  // set and reset by the thread that makes the calls
  bool aborting_ ABSL_GUARDED_BY(mutex_) = false;                 // its Abort is being called, outside of the lock: that may lead back here
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  std::stop_source stop_;
};

}  // namespace fusionllm::collective
