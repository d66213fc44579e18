// A clock that a test moves. Threads in WaitUntil() look again every millisecond of real time, so an Advance() needs no list of waiters.
#pragma once

#include <atomic>
#include <chrono>

#include "lib/transport/clock.h"

namespace fusionllm::transport::testing {

inline constexpr int64_t kMs = 1'000'000;  // in nanoseconds

class FakeClock : public Clock {
 public:
  explicit FakeClock(int64_t now_ns) : now_ns_(now_ns) {}
  int64_t NowNs() const override { return now_ns_; }
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, int64_t deadline_ns) override {
    if (NowNs() < deadline_ns) changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_;
};

}  // namespace fusionllm::transport::testing
