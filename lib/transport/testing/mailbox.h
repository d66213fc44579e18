// Collects what an endpoint receives and which peers it loses, and lets a test wait for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/transport/endpoint.h"

namespace fusionllm::transport::testing {

struct Received {
  std::string from;
  MessageHeader header;
  Payload payload;
};

class Mailbox {
 public:
  static constexpr std::chrono::seconds kTimeout{30};

  void Listen(Endpoint& endpoint) {
    endpoint.SetReceiver([box = box_, on_message = on_message](absl::string_view from, const MessageHeader& header, Payload payload) {
      base::MutexLock lock(box->mu);
      box->messages.push_back({std::string(from), header, std::move(payload)});
      if (on_message) on_message(box->messages.size());
      box->changed.notify_all();
    });
  }
  void WatchFailures(Endpoint& endpoint) {
    endpoint.SetPeerFailure([box = box_](absl::string_view peer, const absl::Status& why) {
      base::MutexLock lock(box->mu);
      box->failures.emplace_back(std::string(peer), why);
      box->changed.notify_all();
    });
  }

  // False when the timeout runs out first.
  bool WaitForMessages(size_t count) {
    base::UniqueLock lock(box_->mu);
    return box_->changed.wait_for(lock, kTimeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(box_->mu) { return box_->messages.size() >= count; });
  }
  bool WaitForFailures(size_t count) {
    base::UniqueLock lock(box_->mu);
    return box_->changed.wait_for(lock, kTimeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(box_->mu) { return box_->failures.size() >= count; });
  }
  std::vector<Received> messages() const {
    base::MutexLock lock(box_->mu);
    return box_->messages;
  }
  std::vector<std::pair<std::string, absl::Status>> failures() const {
    base::MutexLock lock(box_->mu);
    return box_->failures;
  }

  std::function<void(size_t count)> on_message;  // set before Listen(); what it refers to outlives the endpoint

 private:
  // Shared with the callbacks: a test may drop its mailbox before its endpoint.
  struct Box {
    base::Mutex mu;
    std::condition_variable changed;
    std::vector<Received> messages ABSL_GUARDED_BY(mu);
    std::vector<std::pair<std::string, absl::Status>> failures ABSL_GUARDED_BY(mu);
  };
  std::shared_ptr<Box> box_ = std::make_shared<Box>();
};

}  // namespace fusionllm::transport::testing
