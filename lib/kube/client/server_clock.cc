#include "lib/kube/client/server_clock.h"

#include <string>

namespace fusionllm::kube {

void ServerClock::Observe(absl::string_view date, absl::Time sent, absl::Time received) {
  absl::Time from;
  std::string error;
  if (date.empty() || received - sent > kMaxCallDuration || !absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", date, &from, &error)) return;
  const absl::Time to = from + absl::Seconds(1);  // it was written within that second, and within the call
  const absl::Duration ahead = from > received ? from - received : to < sent ? to - sent : absl::ZeroDuration();
  const base::MutexLock lock(mutex_);
  skew_ = ahead;
}

std::optional<absl::Duration> ServerClock::Skew() const {
  const base::MutexLock lock(mutex_);
  return skew_;
}

}  // namespace fusionllm::kube
