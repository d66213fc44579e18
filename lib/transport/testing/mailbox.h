// Collects what an endpoint receives and which peers it loses, and lets a test wait for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lib/transport/endpoint.h"

namespace fusionllm::transport::testing {

struct Received {
  std::string from;
  MessageHeader header;
  Payload payload;
};

class Mailbox {
 public:
  static constexpr std::chrono::seconds kPatience{30};

  void Listen(Endpoint& endpoint) {
    endpoint.SetReceiver([this](absl::string_view from, const MessageHeader& header, Payload payload) {
      std::lock_guard lock(mu_);
      messages_.push_back({std::string(from), header, std::move(payload)});
      if (on_message) on_message(messages_.size());
      changed_.notify_all();
    });
  }
  void WatchFailures(Endpoint& endpoint) {
    endpoint.SetPeerFailure([this](absl::string_view peer, const absl::Status& why) {
      std::lock_guard lock(mu_);
      failures_.emplace_back(std::string(peer), why);
      changed_.notify_all();
    });
  }

  // False when the patience runs out first.
  bool WaitForMessages(size_t count) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, kPatience, [&] { return messages_.size() >= count; });
  }
  bool WaitForFailures(size_t count) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, kPatience, [&] { return failures_.size() >= count; });
  }
  std::vector<Received> messages() const {
    std::lock_guard lock(mu_);
    return messages_;
  }
  std::vector<std::pair<std::string, absl::Status>> failures() const {
    std::lock_guard lock(mu_);
    return failures_;
  }

  std::function<void(size_t count)> on_message;  // set before Listen()

 private:
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<Received> messages_;
  std::vector<std::pair<std::string, absl::Status>> failures_;
};

}  // namespace fusionllm::transport::testing
