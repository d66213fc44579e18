// SIGINT and SIGTERM as a call on a thread of its own, so that nothing happens inside a signal handler.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace fusionllm::daemon {

// From here on these signals wait for an OnStopSignal. Before any other thread is made: threads inherit it. SIGPIPE is ignored: a peer that
// hangs up is an error of the write, not the end of the process.
void BlockStopSignals();

// Calls `on_stop` once, at the first of the signals since BlockStopSignals. One at a time in a process; declared after what it calls.
class OnStopSignal {
 public:
  explicit OnStopSignal(std::function<void()> on_stop);
  // No call starts after it returns.
  ~OnStopSignal();
  OnStopSignal(const OnStopSignal&) = delete;
  OnStopSignal& operator=(const OnStopSignal&) = delete;

 private:
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace fusionllm::daemon
