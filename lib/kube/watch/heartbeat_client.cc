#include "lib/kube/watch/heartbeat_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::kube {

HeartbeatClient::HeartbeatClient(ApiClient& client, Clock& clock, HeartbeatTimes times)
    : ForwardingClient(client), clock_(clock), times_(times), thread_([this](const std::stop_token& stop) { Ask(stop); }) {}

HeartbeatClient::~HeartbeatClient() {
  thread_.request_stop();
  thread_.join();
}

bool HeartbeatClient::Alive() const {
  const base::MutexLock lock(mutex_);
  return missed_ < times_.misses;
}

absl::Status HeartbeatClient::Watch(const Resource& resource, absl::string_view ns, const WatchOptions& options, WatchSink& sink,
                                    std::stop_token stop) {
  std::stop_source end;
  {
    const base::MutexLock lock(mutex_);
    open_.insert(&end);
    changed_.notify_all();
  }
  absl::Status status;
  {
    const std::stop_callback by_caller(stop, [&] { end.request_stop(); });
    status = inner().Watch(resource, ns, options, sink, end.get_token());
  }
  const base::MutexLock lock(mutex_);
  open_.erase(&end);
  if (!end.stop_requested() || stop.stop_requested()) return status;
  return absl::UnavailableError(absl::StrCat("the server has not answered ", times_.misses, " questions of ",
                                             absl::FormatDuration(times_.timeout), " each; its watches are given up"));
}

void HeartbeatClient::Ask(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  base::UniqueLock lock(mutex_);
  while (!stop.stop_requested()) {
    if (open_.empty()) {  // none would profit
      clock_.WaitUntil(lock, changed_, absl::InfiniteDuration());
      continue;
    }
    lock.unlock();
    absl::Status answer;
    if (clock_.WaitFor(times_.period, stop)) answer = inner().GetPath("/version", {.timeout = times_.timeout, .stop = stop}).status();
    lock.lock();
    if (stop.stop_requested()) return;
    if (answer.ok() || ApiErrorOf(answer).has_value()) {  // a refusal is an answer too
      missed_ = 0;
      continue;
    }
    // Without credentials nothing was asked, which says nothing of the server.
    if (absl::IsUnauthenticated(answer) || ++missed_ < times_.misses) continue;
    for (std::stop_source* const watch : open_) watch->request_stop();
  }
}

}  // namespace fusionllm::kube
