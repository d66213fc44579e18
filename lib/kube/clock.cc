#include "lib/kube/clock.h"

#include <chrono>

#include "absl/time/clock.h"
#include "lib/base/mutex.h"

namespace fusionllm::kube {
namespace {

using Steady = std::chrono::steady_clock;

class MachineClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  absl::Duration Monotonic() const override { return absl::FromChrono(Steady::now().time_since_epoch()); }
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
    // Beyond a year a time point might overflow; who waits looks again anyway.
    const absl::Duration wait = std::min(deadline - Monotonic(), absl::Hours(24 * 365));
    changed.wait_for(lock, absl::ToChronoNanoseconds(wait));
  }
};

}  // namespace

bool Clock::WaitFor(absl::Duration time, const std::stop_token& stop) {
  base::Mutex mutex;  // guards nothing; the wait needs one
  std::condition_variable changed;
  const std::stop_callback wake(stop, [&] {
    const base::MutexLock lock(mutex);
    changed.notify_all();
  });
  const absl::Duration deadline = Monotonic() + time;
  base::UniqueLock lock(mutex);
  while (!stop.stop_requested() && Monotonic() < deadline) WaitUntil(lock, changed, deadline);
  return !stop.stop_requested();
}

Clock& RealClock() {
  static MachineClock* const clock = new MachineClock;
  return *clock;
}

}  // namespace fusionllm::kube
