#include "lib/kube/client/concurrency_limiter.h"

namespace fusionllm::kube {

ConcurrencyLimiter::Permit ConcurrencyLimiter::Acquire(const std::stop_token& stop) {
  if (max_in_flight_ == 0) return Permit(nullptr);
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  base::UniqueLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return taken_ < max_in_flight_ || stop.stop_requested(); });
  if (stop.stop_requested()) return {};
  ++taken_;
  return Permit(this);
}

void ConcurrencyLimiter::Release() {
  const base::MutexLock lock(mutex_);
  --taken_;
  changed_.notify_one();
}

}  // namespace fusionllm::kube
