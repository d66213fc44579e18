#include "lib/daemon/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

namespace fusionllm::daemon {
namespace {

// Signals concern the whole process: each case has one of its own. The exit code of `body`, or 128 and the signal.
int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(StopSignalsTest, EachOfThemCallsOnce) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EQ(InChild([signal] {
                std::promise<void> called;
                BlockStopSignals();
                const OnStopSignal on_stop([&] { called.set_value(); });
                kill(getpid(), signal);
                called.get_future().wait();
                kill(getpid(), signal);  // a second set_value would throw
                return 7;
              }),
              7);
  }
}

TEST(StopSignalsTest, ASignalThatCameEarlyIsNotLost) {
  EXPECT_EQ(InChild([] {
              std::promise<void> called;
              BlockStopSignals();
              kill(getpid(), SIGTERM);
              const OnStopSignal on_stop([&] { called.set_value(); });
              called.get_future().wait();
              return 7;
            }),
            7);
}

TEST(StopSignalsTest, WithoutASignalNothingIsCalled) {
  EXPECT_EQ(InChild([] {
              bool called = false;
              BlockStopSignals();
              {
                const OnStopSignal on_stop([&] { called = true; });
              }
              return called ? 1 : 7;
            }),
            7);
}

TEST(StopSignalsTest, WriteToClosedPipeDoesNotEndTheProcess) {
  EXPECT_EQ(InChild([] {
              BlockStopSignals();
              int ends[2];
              if (pipe(ends) != 0) return 1;
              close(ends[0]);
              return write(ends[1], "x", 1) == -1 && errno == EPIPE ? 7 : 2;
            }),
            7);
}

}  // namespace
}  // namespace fusionllm::daemon
