#include "lib/runtime/message.h"

#include <algorithm>
#include <utility>

namespace fusionllm::runtime {

void Inbox::Deliver(const MessageKey& key, Payload payload) {
  const std::lock_guard lock(mutex_);
  if (!cancelled_.ok()) return;
  messages_.try_emplace(key, std::move(payload));
  if (key.kind != MessageKind::kReplica) ++deliveries_;
  news_.notify_all();
}

void Inbox::Cancel(absl::Status status) {
  std::function<void(const absl::Status&)> told;
  {
    const std::lock_guard lock(mutex_);
    if (!cancelled_.ok()) return;
    cancelled_ = status;
    messages_.clear();
    news_.notify_all();
    told = std::move(told_);
  }
  if (told) told(status);
}

void Inbox::WhenCancelled(std::function<void(const absl::Status&)> told) {
  absl::Status cancelled;
  {
    const std::lock_guard lock(mutex_);
    cancelled = cancelled_;
    if (cancelled.ok()) told_ = std::move(told);
  }
  if (!cancelled.ok()) told(cancelled);
}

absl::Status Inbox::status() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

bool Inbox::HasAll(std::span<const MessageKey> keys) const {
  const std::lock_guard lock(mutex_);
  return std::all_of(keys.begin(), keys.end(), [this](const MessageKey& key) { return messages_.contains(key); });
}

absl::StatusOr<Payload> Inbox::Take(const MessageKey& key, absl::Time deadline) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return !cancelled_.ok() || messages_.contains(key); };
  if (deadline == absl::InfiniteFuture()) {
    news_.wait(lock, there);
  } else {
    news_.wait_until(lock, absl::ToChronoTime(deadline), there);
  }
  if (!cancelled_.ok()) return cancelled_;
  const auto found = messages_.find(key);
  if (found == messages_.end()) return absl::DeadlineExceededError("no message came in time");
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
