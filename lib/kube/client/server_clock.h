// How a server's clock stands to ours, by the `Date` of its answers (RFC 9110, 6.6.1), which tells whole seconds. Thread-safe.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace fusionllm::kube {

class ServerClock {
 public:
  // What longer calls tell is passed over: a date is of their beginning, and the end of a list may be long after.
  static constexpr absl::Duration kMaxCallDuration = absl::Seconds(2);

  // An answer with this header, to what was asked at `sent` and answered at `received` by our clock. What is no date is passed over.
  void Observe(absl::string_view date, absl::Time sent, absl::Time received);
  // By how much at least the server is ahead of us, below zero: behind, as of the last answer. Zero where both may be the same. Nothing: it
  // has never said.
  std::optional<absl::Duration> Skew() const;

 private:
  mutable base::Mutex mutex_;
  std::optional<absl::Duration> skew_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::kube
