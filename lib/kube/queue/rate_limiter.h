// How long to wait before trying something again. Pure: the caller says what time it is. Not thread-safe.
#pragma once

#include "absl/time/time.h"

namespace fusionllm::kube {

struct RetryLimits {
  absl::Duration first_delay = absl::Milliseconds(5);  // doubled with each failure in a row
  absl::Duration max_delay = absl::Seconds(1000);
  double per_second = 10;  // of all keys of a cluster together
  int burst = 100;
};

// first_delay * 2^failures, at most max_delay, for any number of failures.
absl::Duration BackoffDelay(const RetryLimits& limits, int failures);

// Hands out `per_second` permits a second, and `burst` at once when it was not asked for long.
class TokenBucket {
 public:
  // per_second > 0, burst >= 1.
  TokenBucket(double per_second, int burst) : per_second_(per_second), burst_(burst), tokens_(burst) {}

  // Takes the next permit and says how long after `now` it holds; at most `max_wait`, and then the permit is not counted.
  // `now` never goes back.
  absl::Duration Take(absl::Duration now, absl::Duration max_wait = absl::InfiniteDuration());

 private:
  const double per_second_;
  const double burst_;
  double tokens_;  // below zero: permits promised
  absl::Duration filled_ = -absl::InfiniteDuration();
};

}  // namespace fusionllm::kube
