#include "lib/transport/clock.h"

#include <chrono>

namespace fusionllm::transport {
namespace {

using Steady = std::chrono::steady_clock;

class RealClock : public Clock {
 public:
  int64_t NowNs() const override { return std::chrono::nanoseconds(Steady::now().time_since_epoch()).count(); }
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, int64_t deadline_ns) override {
    if (deadline_ns == kNever) {
      changed.wait(lock);
    } else {
      changed.wait_until(lock, Steady::time_point(std::chrono::nanoseconds(deadline_ns)));
    }
  }
};

}  // namespace

Clock& MonotonicClock() {
  static RealClock* const clock = new RealClock;
  return *clock;
}

}  // namespace fusionllm::transport
