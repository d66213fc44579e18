// SIGINT and SIGTERM as a call on a thread of its own, so that nothing happens inside a signal handler.
//
// Make it before any other thread: threads inherit that the signals are blocked. One for a process.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace fusionllm::daemon {

class StopSignals {
 public:
  // From here on the signals wait. SIGPIPE is ignored: a peer that hangs up is an error of the write, not the end of the process.
  StopSignals();
  // No call starts after it returns.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Calls `on_stop` once, at the first of these signals, even if it came before this call. At most one CallOnStop for each object.
  void CallOnStop(std::function<void()> on_stop);

 private:
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace fusionllm::daemon
