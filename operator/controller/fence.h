// Which leader writes, as the objects of jobs say it: so that one that was stopped, and wakes up when another leads, changes nothing more.
#pragma once

#include <cstdint>
#include <stop_token>

#include "absl/status/status.h"

namespace fusionllm::op::controller {

// What an object may carry above our own count: leaders change seldom, and more is no leader's.
inline constexpr int64_t kMaxEpochsAhead = int64_t{1} << 32;

// Thread-safe.
class Fence {
 public:
  virtual ~Fence() = default;
  // Greater with each leader; above 0.
  virtual int64_t epoch() const = 0;
  // Something carries an epoch above ours. OK: this process leads all the same, as the server says (the count of leaders has begun again),
  // and epoch() is above `other` from now on, or by kMaxEpochsAhead above what it was counted. FailedPrecondition: it leads no more.
  // Blocks.
  virtual absl::Status OnHigherEpoch(int64_t other, std::stop_token stop) = 0;
};

}  // namespace fusionllm::op::controller
