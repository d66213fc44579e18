#include "lib/kube/queue/rate_limiter.h"

#include <algorithm>

namespace fusionllm::kube {

absl::Duration BackoffDelay(const RetryLimits& limits, int failures) {
  absl::Duration delay = limits.first_delay;
  for (int i = 0; i < failures && delay < limits.max_delay; ++i) delay *= 2;
  return std::min(delay, limits.max_delay);
}

absl::Duration TokenBucket::Take(absl::Duration now, absl::Duration max_wait) {
  if (now > filled_) {
    const double gained = absl::ToDoubleSeconds(now - filled_) * per_second_;  // infinite the first time
    tokens_ = std::min(burst_, tokens_ + gained);
    filled_ = now;
  }
  if (tokens_ >= 1) {
    tokens_ -= 1;
    return absl::ZeroDuration();
  }
  const absl::Duration wait = absl::Seconds((1 - tokens_) / per_second_);
  if (wait > max_wait) return max_wait;
  tokens_ -= 1;
  return wait;
}

}  // namespace fusionllm::kube
