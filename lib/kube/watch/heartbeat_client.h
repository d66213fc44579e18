// A client that notices a server gone silent long before its watches would: a stopped process, or a cut behind a load balancer, still
// acknowledges packets, and a dead watch looks like a quiet one.
//
// While watches are open it asks the server for its version, every `period` and with a short timeout. When that fails `misses` times in a
// row the open watches end with Unavailable, so that what follows them tries again and says so. A question that could not be asked for
// want of credentials counts neither way. All other verbs are those of the client it is made of. Thread-safe.
#pragma once

#include <condition_variable>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include "lib/base/mutex.h"
#include "lib/kube/client/forwarding_client.h"
#include "lib/kube/clock.h"

namespace fusionllm::kube {

struct HeartbeatTimes {
  absl::Duration period = absl::Seconds(11);
  absl::Duration timeout = absl::Seconds(10);
  int misses = 2;  // with the above a silence is noticed within 42 s
};

class HeartbeatClient : public ForwardingClient {
 public:
  // Both must outlive it, and so must no call of it.
  HeartbeatClient(ApiClient& client, Clock& clock, HeartbeatTimes times = {});
  ~HeartbeatClient() override;

  // Whether the last questions were answered; true before the first.
  bool Alive() const;

  absl::Status Watch(const Resource& resource, absl::string_view ns, const WatchOptions& options, WatchSink& sink,
                     std::stop_token stop) override;

 private:
  void Ask(const std::stop_token& stop);

  Clock& clock_;
  const HeartbeatTimes times_;
  mutable base::Mutex mutex_;
  std::condition_variable changed_;
  std::set<std::stop_source*> open_ ABSL_GUARDED_BY(mutex_);  // a watch each; requested: the server was silent
  int missed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

}  // namespace fusionllm::kube
