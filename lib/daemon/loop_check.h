// Whether a loop that works off posted tasks still does: the check behind /healthz.
//
// Thread-safe. At most one task of a check waits in the loop, however often it is asked.
#pragma once

#include <functional>
#include <future>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace fusionllm::daemon {

class LoopCheck {
 public:
  using PostFunction = std::function<void(std::function<void()> task)>;
  // `loop` is its name in messages. What is posted may run after the check is gone.
  LoopCheck(std::string loop, PostFunction post, absl::Duration timeout = absl::Seconds(2))
      : loop_(std::move(loop)), post_(std::move(post)), timeout_(timeout) {}

  // Posts an empty task and waits until it has run. Unavailable when it has not after `timeout`.
  absl::Status Check();

 private:
  const std::string loop_;
  const PostFunction post_;
  const absl::Duration timeout_;
  base::Mutex mutex_;
  std::shared_future<void> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::daemon
