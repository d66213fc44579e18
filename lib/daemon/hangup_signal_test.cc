#include "lib/daemon/hangup_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace fusionllm::daemon {
namespace {

TEST(HangupSignalTest, EachIsACallAndNoneEndsTheProgram) {
  BlockHangupSignal();
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  {
    const OnHangup on_hangup([&] {
      const std::lock_guard lock(mutex);
      ++calls;
      changed.notify_all();
    });
    for (int i = 1; i <= 3; ++i) {
      kill(getpid(), SIGHUP);
      std::unique_lock lock(mutex);
      ASSERT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return calls == i; }));
    }
  }
  EXPECT_EQ(calls, 3) << "that it ends is no call";
}

}  // namespace
}  // namespace fusionllm::daemon
