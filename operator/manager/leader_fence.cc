#include "operator/manager/leader_fence.h"

#include <algorithm>

namespace fusionllm::op::manager {

absl::Status LeaderFence::MayWrite() const {
  return elector_.IsLeader() ? absl::OkStatus() : absl::FailedPreconditionError("this process does not lead");
}

int64_t LeaderFence::epoch() const {
  const int64_t counted = elector_.epoch() + 1;  // the first leader's count is zero, which here stands for none
  const base::MutexLock lock(mutex_);
  return counted + above_;
}

absl::Status LeaderFence::OnHigherEpoch(int64_t other, std::stop_token stop) {
  const absl::Status leads = elector_.Confirm(std::move(stop));
  if (absl::IsFailedPrecondition(leads)) on_lost_(std::string(leads.message()));
  if (!leads.ok()) return leads;
  const int64_t counted = elector_.epoch() + 1;
  const base::MutexLock lock(mutex_);
  above_ = std::max(above_, std::clamp<int64_t>(other, 0, counted + controller::kMaxEpochsAhead) + 1 - counted);
  return absl::OkStatus();
}

}  // namespace fusionllm::op::manager
