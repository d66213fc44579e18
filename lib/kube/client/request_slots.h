// Bounds how many requests of one client are under way at once. Thread-safe.
#pragma once

#include <condition_variable>
#include <stop_token>
#include <utility>

#include "lib/base/mutex.h"

namespace fusionllm::kube {

class RequestSlots {
 public:
  // A place among those under way, given back when it goes. False: none was to be had.
  class Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept : slots_(std::exchange(other.slots_, nullptr)), granted_(other.granted_) {}
    Slot& operator=(Slot&&) = delete;
    ~Slot() {
      if (slots_ != nullptr) slots_->GiveBack();
    }
    explicit operator bool() const { return granted_; }

   private:
    friend class RequestSlots;
    explicit Slot(RequestSlots* slots) : slots_(slots), granted_(true) {}
    RequestSlots* slots_ = nullptr;  // null: nothing to give back
    bool granted_ = false;
  };

  // `most` 0: any number.
  explicit RequestSlots(int most) : most_(most) {}

  // Blocks until there is a place, or `stop` is requested.
  Slot Take(const std::stop_token& stop);

 private:
  void GiveBack();

  const int most_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fusionllm::kube
