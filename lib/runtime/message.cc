#include "lib/runtime/message.h"

#include <algorithm>
#include <utility>

namespace fusionllm::runtime {

void Inbox::Deliver(const MessageKey& key, Payload payload) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_.ok()) return;
  messages_.try_emplace(key, std::move(payload));
  ++deliveries_;
  news_.notify_all();
}

void Inbox::Cancel(absl::Status status) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_.ok()) return;
  cancelled_ = std::move(status);
  messages_.clear();
  news_.notify_all();
}

absl::Status Inbox::status() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

bool Inbox::HasAll(std::span<const MessageKey> keys) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(keys.begin(), keys.end(), [this](const MessageKey& key) { return messages_.contains(key); });
}

absl::StatusOr<Payload> Inbox::Take(const MessageKey& key) {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return !cancelled_.ok() || messages_.contains(key); });
  if (!cancelled_.ok()) return cancelled_;
  const auto found = messages_.find(key);
  Payload payload = std::move(found->second);
  messages_.erase(found);
  return payload;
}

uint64_t Inbox::deliveries() const {
  const std::lock_guard lock(mutex_);
  return deliveries_;
}

absl::Status Inbox::WaitForNews(uint64_t seen) {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [&] { return !cancelled_.ok() || deliveries_ != seen; });
  return cancelled_;
}

}  // namespace fusionllm::runtime
