// Time as the link emulation sees it, so that tests can set it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

namespace fusionllm::transport {

class Clock {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  virtual ~Clock() = default;
  // Nanoseconds that never go back.
  virtual int64_t NowNs() const = 0;
  // Blocks until `changed` is notified or the clock reaches `deadline_ns`; may return early. `lock` is held again on return.
  virtual void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, int64_t deadline_ns) = 0;
};

// CLOCK_MONOTONIC: one clock for all processes of a machine. Lives for ever.
Clock& MonotonicClock();

}  // namespace fusionllm::transport
