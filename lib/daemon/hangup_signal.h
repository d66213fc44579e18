// SIGHUP as a call on a thread of its own: by it people tell a program that does not end to read its settings again.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace fusionllm::daemon {

// From here on the signal, which would end the program, waits for an OnHangup. Before any other thread is made: threads inherit it.
void BlockHangupSignal();

// Calls `on_hangup` at each of the signals since BlockHangupSignal; of those that come while it runs, once. One at a time in a process;
// declared after what it calls.
class OnHangup {
 public:
  explicit OnHangup(std::function<void()> on_hangup);
  // No call starts after it returns.
  ~OnHangup();
  OnHangup(const OnHangup&) = delete;
  OnHangup& operator=(const OnHangup&) = delete;

 private:
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace fusionllm::daemon
