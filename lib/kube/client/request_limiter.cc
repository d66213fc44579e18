#include "lib/kube/client/request_limiter.h"

#include <algorithm>

namespace fusionllm::kube {

RequestLimiter::RequestLimiter(double per_second, int burst, Clock& clock)
    : interval_(absl::Seconds(1) / per_second), ahead_(interval_ * (burst - 1)), clock_(clock), next_(clock.Monotonic() - ahead_) {}

absl::Duration RequestLimiter::Wait(const std::stop_token& stop) {
  const absl::Duration now = clock_.Monotonic();
  absl::Duration go;
  {
    const std::lock_guard lock(mutex_);
    next_ = std::max(next_, now - ahead_);
    go = next_;
    next_ += interval_;
  }
  if (stop.stop_requested()) return absl::InfiniteDuration();
  if (go <= now) return absl::ZeroDuration();
  return clock_.WaitFor(go - now, stop) ? go - now : absl::InfiniteDuration();
}

}  // namespace fusionllm::kube
