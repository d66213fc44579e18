// A token bucket that callers wait at, so that one client does not take an API server for itself. Thread-safe; first come, first served up
// to the scheduling of threads.
#pragma once

#include <stop_token>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/clock.h"

namespace fusionllm::kube {

class RequestLimiter {
 public:
  // `per_second` > 0 in the long run, `burst` >= 1 at once.
  RequestLimiter(double per_second, int burst, Clock& clock);

  // Blocks until the next request may go; the time that took. Infinite when `stop` was requested first.
  absl::Duration Wait(const std::stop_token& stop);

  // For all that ask from now on; those that wait keep what they were promised. What the bucket holds stays, up to the new burst.
  void SetRate(double per_second, int burst);

 private:
  absl::Duration Ahead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return interval_ * (burst_ - 1);
  }  // how far the bucket may be ahead of the clock

  Clock& clock_;
  base::Mutex mutex_;
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);  // between two requests
  int burst_ ABSL_GUARDED_BY(mutex_);
  absl::Duration next_ ABSL_GUARDED_BY(mutex_);  // when the request after all granted ones may go, if the bucket were empty
};

}  // namespace fusionllm::kube
