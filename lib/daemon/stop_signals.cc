#include "lib/daemon/stop_signals.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace fusionllm::daemon {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

OnStopSignal::OnStopSignal(std::function<void()> on_stop)
    : thread_([this, on_stop = std::move(on_stop)] {
        const sigset_t signals = Signals();
        int signal = 0;
        sigwait(&signals, &signal);
        if (!ending_) on_stop();
      }) {}

OnStopSignal::~OnStopSignal() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);  // to it alone
  thread_.join();
}

}  // namespace fusionllm::daemon
