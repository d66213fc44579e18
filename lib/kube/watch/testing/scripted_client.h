// An API server by script: lists and watches are answered by functions that a test queues, in order; what was asked is recorded. When
// there is no answer left, a call blocks until it is stopped, as one to a silent server would. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/unimplemented_client.h"

namespace fusionllm::kube::testing {

class ScriptedClient : public UnimplementedClient {
 public:
  using ListAnswer = std::function<absl::StatusOr<std::string>(const ListOptions& options)>;
  // Runs a watch: may feed the sink, and returns what Watch() does.
  using WatchAnswer = std::function<absl::Status(const WatchOptions& options, WatchSink& sink, const std::stop_token& stop)>;

  void OnList(ListAnswer answer) {
    const base::MutexLock lock(mutex_);
    list_answers_.push_back(std::move(answer));
    changed_.notify_all();
  }
  void OnList(std::string answer) {
    OnList([answer = std::move(answer)](const ListOptions&) { return answer; });
  }
  void OnListError(absl::Status status) {
    OnList([status = std::move(status)](const ListOptions&) -> absl::StatusOr<std::string> { return status; });
  }
  void OnWatch(WatchAnswer answer) {
    const base::MutexLock lock(mutex_);
    watch_answers_.push_back(std::move(answer));
    changed_.notify_all();
  }
  // Lines sent at once; then the watch ends with `end`.
  void OnWatch(std::string lines, absl::Status end) {
    OnWatch([lines = std::move(lines), end = std::move(end)](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
      absl::Status status = sink.OnOpen();
      if (status.ok()) status = sink.OnData(lines);
      return status.ok() ? end : status;
    });
  }
  // Lines sent at once; then the server ends the watch in good order, a second of `clock` later.
  void OnWatchOfASecond(std::string lines, FakeClock& clock) {
    OnWatch([lines = std::move(lines), &clock](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
      absl::Status status = sink.OnOpen();
      if (status.ok()) status = sink.OnData(lines);
      clock.Advance(absl::Seconds(1));
      return status;
    });
  }
  // Lines sent at once; then silence until the watch is stopped.
  void OnWatchThatStays(std::string lines) {
    OnWatch([this, lines = std::move(lines)](const WatchOptions&, WatchSink& sink, const std::stop_token& stop) {
      absl::Status status = sink.OnOpen();
      if (status.ok()) status = sink.OnData(lines);
      if (!status.ok()) return status;
      base::UniqueLock lock(mutex_);
      return Silence(lock, stop);
    });
  }

  // As if nothing had been asked so far.
  void Forget() {
    const base::MutexLock lock(mutex_);
    lists_.clear();
    watches_.clear();
  }

  // Blocks until `count` lists or watches were asked for, and gives them all.
  std::vector<ListOptions> Lists(size_t count) {
    base::UniqueLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lists_.size() >= count; });
    return lists_;
  }
  std::vector<WatchOptions> Watches(size_t count) {
    base::UniqueLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return watches_.size() >= count; });
    return watches_;
  }

  absl::StatusOr<std::string> List(const Resource&, absl::string_view, const ListOptions& options, const CallOptions& call) override {
    ListAnswer answer;
    {
      base::UniqueLock lock(mutex_);
      lists_.push_back(options);
      changed_.notify_all();
      if (list_answers_.empty()) {
        const absl::Status stopped = Silence(lock, call.stop, &list_answers_);
        if (!stopped.ok()) return stopped;
      }
      answer = std::move(list_answers_.front());
      list_answers_.pop_front();
    }
    return answer(options);
  }
  absl::Status Watch(const Resource&, absl::string_view, const WatchOptions& options, WatchSink& sink, std::stop_token stop) override {
    WatchAnswer answer;
    {
      base::UniqueLock lock(mutex_);
      watches_.push_back(options);
      changed_.notify_all();
      if (watch_answers_.empty()) {
        const absl::Status stopped = Silence(lock, stop, &watch_answers_);
        if (!stopped.ok()) return stopped;
      }
      answer = std::move(watch_answers_.front());
      watch_answers_.pop_front();
    }
    return answer(options, sink, stop);
  }

 private:
  // Until `stop`, or until there is an answer in `answers`.
  template <class Answers = std::deque<ListAnswer>>
  absl::Status Silence(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, const Answers* answers = nullptr) {
    const auto done = [&] { return stop.stop_requested() || (answers != nullptr && !answers->empty()); };
    while (!done()) changed_.wait_for(lock, std::chrono::milliseconds(1));  // a stop has no lock to notify under
    return stop.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
  }

  base::Mutex mutex_;
  std::condition_variable changed_;
  std::deque<ListAnswer> list_answers_ ABSL_GUARDED_BY(mutex_);
  std::deque<WatchAnswer> watch_answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<ListOptions> lists_ ABSL_GUARDED_BY(mutex_);
  std::vector<WatchOptions> watches_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::kube::testing
