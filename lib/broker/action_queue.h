// What a run orders while one event is handled, in order, and the one timer that it has. Handed to whichever machine of the run acts.
//
// Plain data; not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/broker/events.h"

namespace fusionllm::broker {

class ActionQueue {
 public:
  void Push(Action action) { actions_.push_back(std::move(action)); }
  // Starts the timer, in the place of the one that runs.
  void ArmTimer(double seconds, std::string what) { Push(StartTimer{.id = ++timer_, .seconds = seconds, .what = std::move(what)}); }
  // What the timer was started for is no more awaited, or without a limit.
  void DisarmTimer() { ++timer_; }
  uint64_t timer() const { return timer_; }  // the one whose end counts

  std::vector<Action> Take() { return std::exchange(actions_, {}); }

 private:
  std::vector<Action> actions_;
  uint64_t timer_ = 0;
};

}  // namespace fusionllm::broker
