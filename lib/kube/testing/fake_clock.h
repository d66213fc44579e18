// A clock that a test moves. Threads in WaitUntil() look again every millisecond of real time, so an Advance() needs no list of waiters.
#pragma once

#include <chrono>
#include <mutex>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/clock.h"

namespace fusionllm::kube::testing {

class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time now = absl::FromUnixSeconds(1'700'000'000)) : now_(now) {}

  absl::Time Now() const override {
    const base::MutexLock lock(mutex_);
    return now_;
  }
  absl::Duration Monotonic() const override {
    const base::MutexLock lock(mutex_);
    return monotonic_;
  }
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
    if (Monotonic() < deadline) changed.wait_for(lock, std::chrono::milliseconds(1));
  }

  // Both kinds of time pass.
  void Advance(absl::Duration time) {
    const base::MutexLock lock(mutex_);
    now_ += time;
    monotonic_ += time;
  }
  // Somebody sets the machine's clock: the monotonic one does not care.
  void SetNow(absl::Time now) {
    const base::MutexLock lock(mutex_);
    now_ = now;
  }

 private:
  mutable base::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
  absl::Duration monotonic_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1000);
};

// A clock that moves by itself to the moment that somebody waits for: one thread runs through its waits without waiting, and a test knows
// to the nanosecond how long they were. Not for waits without an end.
class SelfAdvancingClock : public FakeClock {
 public:
  using FakeClock::FakeClock;
  void WaitUntil(std::unique_lock<std::mutex>&, std::condition_variable&, absl::Duration deadline) override {
    const absl::Duration left = deadline - Monotonic();
    if (left > absl::ZeroDuration()) Advance(left);
  }
};

}  // namespace fusionllm::kube::testing
