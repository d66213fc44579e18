// A watch on a thread of its own, and what it has seen so far.
#pragma once

#include <condition_variable>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kube/client/api_client.h"

namespace fusionllm::kube::testing {

class WatchRecorder : public WatchSink {
 public:
  WatchRecorder(ApiClient& api, const Resource& resource, const std::string& ns, const WatchOptions& options)
      : thread_([this, &api, resource, ns, options] {
          absl::Status status = api.Watch(resource, ns, options, *this, stop_.get_token());
          const base::MutexLock lock(mutex_);
          ended_ = true;
          result_ = std::move(status);
          changed_.notify_all();
        }) {}
  ~WatchRecorder() override { Stop().IgnoreError(); }

  // Until the server has accepted the watch, or it has ended; false after a minute.
  bool WaitForOpen() {
    base::UniqueLock lock(mutex_);
    return changed_.wait_for(lock, kTimeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return opened_ || ended_; }) && opened_;
  }
  // Until there are so many events; what there is then. Bookmarks, which a server sends when it likes, count only if wanted.
  std::vector<nlohmann::json> WaitForEvents(size_t count, bool with_bookmarks = false) {
    base::UniqueLock lock(mutex_);
    const std::vector<nlohmann::json>& events = with_bookmarks ? all_ : events_;
    changed_.wait_for(lock, kTimeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return events.size() >= count || ended_; });
    return events;
  }
  // Until the watch has ended by itself.
  absl::Status WaitForEnd() {
    base::UniqueLock lock(mutex_);
    if (!changed_.wait_for(lock, kTimeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; }))
      return absl::InternalError("the watch goes on");
    return result_;
  }
  absl::Status Stop() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
    const base::MutexLock lock(mutex_);
    return result_;
  }

 private:
  static constexpr auto kTimeout = std::chrono::minutes(1);

  absl::Status OnOpen() override {
    const base::MutexLock lock(mutex_);
    opened_ = true;
    changed_.notify_all();
    return absl::OkStatus();
  }
  absl::Status OnData(absl::string_view chunk) override {
    const base::MutexLock lock(mutex_);
    buffer_.append(chunk.data(), chunk.size());
    for (size_t end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n')) {
      all_.push_back(nlohmann::json::parse(buffer_.substr(0, end), nullptr, /*allow_exceptions=*/false));
      if (!all_.back().is_object() || all_.back().value("type", "") != "BOOKMARK") events_.push_back(all_.back());
      buffer_.erase(0, end + 1);
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  std::stop_source stop_;
  base::Mutex mutex_;
  std::condition_variable changed_;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mutex_);
  std::string buffer_ ABSL_GUARDED_BY(mutex_);
  std::vector<nlohmann::json> all_ ABSL_GUARDED_BY(mutex_), events_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all of the above
};

// "ADDED a", "BOOKMARK": type and name of an event.
inline std::string Brief(const nlohmann::json& event) {
  const std::string type = event.value("type", "?");
  if (type == "BOOKMARK" || type == "ERROR") return type;
  return type + " " + event["object"]["metadata"].value("name", "?");
}

}  // namespace fusionllm::kube::testing
