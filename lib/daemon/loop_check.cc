#include "lib/daemon/loop_check.h"

#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"

namespace fusionllm::daemon {

absl::Status LoopCheck::Check() {
  std::shared_future<void> answer;
  {
    const base::MutexLock lock(mutex_);
    if (!pending_.valid() || pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
      const auto promise = std::make_shared<std::promise<void>>();
      pending_ = promise->get_future().share();
      post_([promise] { promise->set_value(); });
    }
    answer = pending_;
  }
  if (answer.wait_for(absl::ToChronoNanoseconds(timeout_)) == std::future_status::ready) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(loop_, " has not answered for ", absl::FormatDuration(timeout_)));
}

}  // namespace fusionllm::daemon
