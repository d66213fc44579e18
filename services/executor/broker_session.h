// An executor's line to its broker: one stream, re-dialled when it breaks, reports repeated until acknowledged.
//
// Run() blocks on the caller's thread; Report() may be called from any thread and never blocks on the network.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"

namespace fusionllm::services {

struct SessionOptions {
  std::string address;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // How long the broker may stay away before the executor gives up.
  double timeout_seconds = 120;
  // Called when the broker has answered, at least every `contact_seconds` while their stream is up, and when it ends; on threads of the
  // session, perhaps two at once. Must not block long.
  std::function<void()> on_contact = [] {};
  double contact_seconds = 30;
  std::chrono::milliseconds renewal{2'000};  // see ReconnectingChannel
};

class BrokerSession {
 public:
  using HelloFunction = std::function<v1::Hello()>;                       // asked at every connection
  using MessageFunction = std::function<void(const v1::BrokerMessage&)>;  // on Run's thread; must not block long
  explicit BrokerSession(SessionOptions options) : options_(std::move(options)) {}

  // Until the broker says Shutdown (OK), refuses (FailedPrecondition or Unauthenticated with its sentence), Stop() is called (Cancelled),
  // or the broker stays away too long (Unavailable).
  absl::Status Run(const HelloFunction& hello, const MessageFunction& on_message);
  void Report(v1::ExecutorMessage message);
  // Tells the broker that this executor leaves, and ends Run. Blocks for a second at most; not on Run's thread.
  void Stop();
  // Runs `task` on a thread of the session, soon; never when the session is over. Must not block long.
  void Post(std::function<void()> task);
  // The broker has welcomed this executor, and their stream is up.
  bool connected() const { return connected_; }
  // Blocks until every report is acknowledged, the session is over, or `seconds` have passed.
  void Flush(double seconds);

 private:
  absl::Status Attend(v1::Broker::Stub& stub, const HelloFunction& hello, const MessageFunction& on_message, bool* over);
  void Acknowledge(uint64_t sequence);
  void RunTasks(std::unique_lock<std::mutex>& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SessionOptions options_;
  base::Mutex mutex_;
  std::condition_variable news_;
  uint64_t next_sequence_ ABSL_GUARDED_BY(mutex_) = 1;
  std::deque<v1::ExecutorMessage> unacknowledged_ ABSL_GUARDED_BY(mutex_);  // ascending
  size_t written_ ABSL_GUARDED_BY(mutex_) = 0;                              // of unacknowledged_, on the present stream
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool stream_up_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> connected_ = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace fusionllm::services
