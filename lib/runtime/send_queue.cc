#include "lib/runtime/send_queue.h"

#include <utility>

#include "lib/base/status_macros.h"

namespace fusionllm::runtime {

SendQueue::SendQueue(MessagePort& port, int stages, std::function<void(const absl::Status&)> failed)
    : port_(port), failed_(std::move(failed)), sent_bytes_(stages, 0), thread_([this] { Work(); }) {}

SendQueue::~SendQueue() {
  {
    const base::MutexLock lock(mutex_);
    ending_ = true;
    messages_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void SendQueue::Push(Message message) {
  {
    base::UniqueLock lock(mutex_);
    changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return messages_.size() < kMessagesUnderWay || !status_.ok(); });
    if (!status_.ok()) return;
    messages_.push_back(std::move(message));
  }
  changed_.notify_all();
}

absl::Status SendQueue::Drain() {
  base::UniqueLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return (messages_.empty() && !busy_) || !status_.ok(); });
  return status_;
}

std::vector<int64_t> SendQueue::sent_bytes() const {
  const base::MutexLock lock(mutex_);
  return sent_bytes_;
}

absl::Status SendQueue::Hand(Message message) {
  Payload payload;
  if (const absl::Status finished = message.pending->Finish(&payload); !finished.ok()) return message.explain(finished);
  message.pending.reset();
  const auto bytes = static_cast<int64_t>(payload.size());
  FUSIONLLM_RETURN_IF_ERROR(port_.Send(message.to_stage, message.key, std::move(payload)));
  const base::MutexLock lock(mutex_);
  sent_bytes_[message.to_stage] += bytes;
  return absl::OkStatus();
}

void SendQueue::Work() {
  while (true) {
    Message message;
    {
      base::UniqueLock lock(mutex_);
      changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !messages_.empty(); });
      if (ending_) return;
      message = std::move(messages_.front());
      messages_.pop_front();
      busy_ = true;
    }
    changed_.notify_all();
    const absl::Status handed = Hand(std::move(message));
    {
      const base::MutexLock lock(mutex_);
      busy_ = false;
      if (!handed.ok()) {
        status_ = handed;
        messages_.clear();
      }
    }
    changed_.notify_all();
    if (handed.ok()) continue;
    failed_(handed);
    return;
  }
}

}  // namespace fusionllm::runtime
