#include "lib/kube/client/server_clock.h"

#include <string>

namespace fusionllm::kube {

void ServerClock::Heard(absl::string_view date, absl::Time sent, absl::Time received) {
  absl::Time from;
  std::string error;
  if (date.empty() || received - sent > kLongestCall || !absl::ParseTime("%a, %d %b %Y %H:%M:%S GMT", date, &from, &error)) return;
  const absl::Time to = from + absl::Seconds(1);  // it was written within that second, and within the call
  const absl::Duration ahead = from > received ? from - received : to < sent ? to - sent : absl::ZeroDuration();
  const base::MutexLock lock(mutex_);
  ahead_ = ahead;
}

std::optional<absl::Duration> ServerClock::Ahead() const {
  const base::MutexLock lock(mutex_);
  return ahead_;
}

}  // namespace fusionllm::kube
