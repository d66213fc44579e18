// Bounds how many requests of one client are under way at once. Thread-safe.
#pragma once

#include <condition_variable>
#include <stop_token>
#include <utility>

#include "lib/base/mutex.h"

namespace fusionllm::kube {

class ConcurrencyLimiter {
 public:
  // A place among those under way, given back when it goes. False: none was to be had.
  class Permit {
   public:
    Permit() = default;
    Permit(Permit&& other) noexcept : limiter_(std::exchange(other.limiter_, nullptr)), granted_(other.granted_) {}
    Permit& operator=(Permit&&) = delete;
    ~Permit() {
      if (limiter_ != nullptr) limiter_->Release();
    }
    explicit operator bool() const { return granted_; }

   private:
    friend class ConcurrencyLimiter;
    explicit Permit(ConcurrencyLimiter* limiter) : limiter_(limiter), granted_(true) {}
    ConcurrencyLimiter* limiter_ = nullptr;  // null: nothing to give back
    bool granted_ = false;
  };

  // `max_in_flight` 0: any number.
  explicit ConcurrencyLimiter(int max_in_flight) : max_in_flight_(max_in_flight) {}

  // Blocks until there is a place, or `stop` is requested.
  Permit Acquire(const std::stop_token& stop);

 private:
  void Release();

  const int max_in_flight_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fusionllm::kube
