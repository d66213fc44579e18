// A question that costs much, for who asks it all the time.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

namespace fusionllm::services {

// Whether `check` has once been true, which is asked at most once in a period: a search wants to know before each of its steps, and asking
// gRPC whether a call was cancelled takes longer than such a step does. Not thread-safe; copies ask by themselves.
class ThrottledCancellationCheck {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPeriod{5};

  explicit ThrottledCancellationCheck(std::function<bool()> check, std::function<Clock::time_point()> now = Clock::now)
      : check_(std::move(check)), now_(std::move(now)) {}

  bool operator()() {
    if (found_) return true;
    const Clock::time_point now = now_();
    if (now < next_) return false;
    next_ = now + kPeriod;
    found_ = check_();
    return found_;
  }

 private:
  std::function<bool()> check_;
  std::function<Clock::time_point()> now_;
  Clock::time_point next_ = Clock::time_point::min();
  bool found_ = false;
};

}  // namespace fusionllm::services
