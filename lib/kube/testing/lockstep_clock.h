// A clock that waits for those who wait for it.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/testing/fake_clock.h"

namespace fusionllm::kube::testing {

// Time that does not run ahead of the threads under test, however busy the machine is: it goes on when all who wait for it have looked at
// it. Not for threads that, once they have waited for it, wait for something that needs more of it.
class LockstepClock : public FakeClock {
 public:
  using FakeClock::FakeClock;
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
    {
      const base::MutexLock own(mutex_);
      if (++looks_[ThisThread()] == 2) looked_.notify_all();
    }
    FakeClock::WaitUntil(lock, changed, deadline);
  }
  // Goes on by `time` as soon as at least `waiters` threads wait and have taken in the last step; or not yet, after a moment.
  void Step(absl::Duration time, size_t waiters) {
    base::UniqueLock own(mutex_);
    looks_.erase(ThisThread());  // which waits no more
    looked_.wait_for(own, std::chrono::milliseconds(5), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return looks_.size() >= waiters && std::all_of(looks_.begin(), looks_.end(), [](const auto& of) { return of.second >= 2; });
    });
    std::erase_if(looks_, [](const auto& of) { return !std::filesystem::exists("/proc/self/task/" + std::to_string(of.first)); });
    if (looks_.size() < waiters) return;
    for (const auto& [thread, looks] : looks_) {
      if (looks < 2) return;  // the first may have begun before the step
    }
    for (auto& [thread, looks] : looks_) looks = 0;
    Advance(time);
  }

 private:
  static int ThisThread() { return static_cast<int>(syscall(SYS_gettid)); }

  base::Mutex mutex_;
  std::condition_variable looked_;
  std::map<int, int> looks_ ABSL_GUARDED_BY(mutex_);  // of each thread since the last step
};

}  // namespace fusionllm::kube::testing
