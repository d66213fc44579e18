#include "lib/kube/client/request_slots.h"

namespace fusionllm::kube {

RequestSlots::Slot RequestSlots::Take(const std::stop_token& stop) {
  if (most_ == 0) return Slot(nullptr);
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  base::UniqueLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return taken_ < most_ || stop.stop_requested(); });
  if (stop.stop_requested()) return {};
  ++taken_;
  return Slot(this);
}

void RequestSlots::GiveBack() {
  const base::MutexLock lock(mutex_);
  --taken_;
  changed_.notify_one();
}

}  // namespace fusionllm::kube
