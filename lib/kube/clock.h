// Time as the Kubernetes client sees it, so that tests can set it: nothing below lib/kube asks the machine for the time or sleeps by
// itself.
//
// Now() is for what is written into objects and read out of them; it jumps when somebody sets the clock. Everything that waits or expires
// goes by Monotonic(). Thread-safe.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "absl/time/time.h"

namespace fusionllm::kube {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // Since some moment before the program began; never goes back.
  virtual absl::Duration Monotonic() const = 0;
  // Blocks until `changed` is notified or Monotonic() reaches `deadline` (absl::InfiniteDuration(): never); may return early. `lock` is
  // held again on return.
  virtual void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) = 0;

  // Blocks for `time`. False when `stop` was requested before it was over.
  bool WaitFor(absl::Duration time, const std::stop_token& stop);
};

// The machine's clocks. Lives for ever.
Clock& RealClock();

}  // namespace fusionllm::kube
