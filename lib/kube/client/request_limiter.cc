#include "lib/kube/client/request_limiter.h"

#include <algorithm>

namespace fusionllm::kube {

RequestLimiter::RequestLimiter(double per_second, int burst, Clock& clock)
    : clock_(clock), interval_(absl::Seconds(1) / per_second), burst_(burst), next_(clock.Monotonic() - Ahead()) {}

absl::Duration RequestLimiter::Wait(const std::stop_token& stop) {
  const absl::Duration now = clock_.Monotonic();
  absl::Duration go;
  {
    const base::MutexLock lock(mutex_);
    next_ = std::max(next_, now - Ahead());
    go = next_;
    next_ += interval_;
  }
  if (stop.stop_requested()) return absl::InfiniteDuration();
  if (go <= now) return absl::ZeroDuration();
  return clock_.WaitFor(go - now, stop) ? go - now : absl::InfiniteDuration();
}

void RequestLimiter::SetRate(double per_second, int burst) {
  const absl::Duration now = clock_.Monotonic();
  const base::MutexLock lock(mutex_);
  // Below zero: promised to those that wait.
  const double held = burst_ - absl::FDivDuration(std::max(next_, now - Ahead()) - (now - Ahead()), interval_);
  interval_ = absl::Seconds(1) / per_second;
  burst_ = burst;
  next_ = now - Ahead() + interval_ * (burst_ - std::min<double>(held, burst_));
}

}  // namespace fusionllm::kube
