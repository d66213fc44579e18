// How often it is reported that something is tried again: at the first failure, and then whenever it has gone on for twice as long as when
// it was reported last, so that a trouble of hours is a dozen lines. Not thread-safe; time is the caller's.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace fusionllm::objectstore {

class RetryReportThrottle {
 public:
  // After so long without a failure the next is the first again. Longer than a try that stalls and the pauses of a mirror.
  static constexpr absl::Duration kResetAfter = absl::Minutes(5);

  // A failure; whether it is to be reported.
  bool ShouldReport(absl::Time now) {
    if (now - last_ > kResetAfter) {
      since_ = now;
      next_ = absl::Seconds(1);
    } else if (now - since_ < next_) {
      last_ = now;
      return false;
    } else {
      next_ = 2 * std::max<absl::Duration>(now - since_, absl::Seconds(1));
    }
    last_ = now;
    return true;
  }
  // Since the first failure.
  absl::Duration Elapsed() const { return last_ - since_; }

 private:
  absl::Time since_ = absl::InfinitePast(), last_ = absl::InfinitePast();
  absl::Duration next_;
};

}  // namespace fusionllm::objectstore
