#include "cli/run/signal_watch.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace fusionllm::cli {

SignalWatch::SignalWatch() {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&watched, signal);
  sigprocmask(SIG_BLOCK, &watched, &before_);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
  fd_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) {
    std::perror("signalfd");
    std::abort();
  }
}

SignalWatch::~SignalWatch() {
  Take();  // what is pending must not strike when the mask goes back
  close(fd_);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

bool SignalWatch::Take() {
  const int before = stop_requests_;
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) ++stop_requests_;
  }
  return stop_requests_ > before;
}

}  // namespace fusionllm::cli
