#include "lib/daemon/hangup_signal.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace fusionllm::daemon {
namespace {

sigset_t Hangup() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

void BlockHangupSignal() {
  const sigset_t signals = Hangup();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Under nohup it would be ignored, and waiting for it end never.
  signal(SIGHUP, SIG_DFL);
}

OnHangup::OnHangup(std::function<void()> on_hangup)
    : thread_([this, on_hangup = std::move(on_hangup)] {
        const sigset_t signals = Hangup();
        for (int signal = 0; sigwait(&signals, &signal) == 0 && !ending_;) on_hangup();
      }) {}

OnHangup::~OnHangup() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), SIGHUP);  // to it alone
  thread_.join();
}

}  // namespace fusionllm::daemon
