// Turns SIGINT, SIGTERM, SIGHUP and SIGCHLD into something to poll, from construction to destruction. SIGPIPE is ignored meanwhile: a
// reader that went away shows up as a failed write.
//
// One at a time in a process, on the thread that starts the children. Not thread-safe.
#pragma once

#include <csignal>

namespace fusionllm::cli {

class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Readable when a signal has arrived.
  int fd() const { return fd_; }
  // Takes what has arrived. True when some of it asked for an end (SIGINT, SIGTERM, SIGHUP).
  bool Take();
  // How often an end was asked for, since construction.
  int stop_requests() const { return stop_requests_; }

 private:
  int fd_ = -1;
  int stop_requests_ = 0;
  sigset_t before_;
  struct sigaction pipe_before_;
};

}  // namespace fusionllm::cli
