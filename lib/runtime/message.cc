#include "lib/runtime/message.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/runtime/expected_messages.h"

namespace fusionllm::runtime {
namespace {

// What a chunk takes beside its bytes.
constexpr uint64_t kMessageOverheadBytes = 256;

}  // namespace

Inbox::Inbox() = default;
Inbox::~Inbox() = default;

void Inbox::Expect(std::unique_ptr<const ExpectedMessages> expected, int64_t first_step) {
  const base::MutexLock lock(mutex_);
  expected_ = std::move(expected);
  step_ = first_step;
}

// A stage is never two steps ahead of another one: stage 0 decides on a step when all have reported on it, and a report is sent when all
// messages of the step have been taken. So what is taken last says which steps messages can be of.
absl::Status Inbox::CheckDelivery(int place, const MessageKey& key, uint64_t bytes) const {
  const base::MutexLock lock(mutex_);
  if (expected_ == nullptr) return absl::PermissionDeniedError("no messages of other machines are expected here");
  FUSIONLLM_RETURN_IF_ERROR(expected_->Check(place, key, bytes));
  if (messages_.contains(key)) return absl::AlreadyExistsError("the message is here already");
  if (key.kind == MessageKind::kReplica) {
    const auto held = chunk_bytes_.find(expected_->SenderOf(key));
    const uint64_t bytes_held = held == chunk_bytes_.end() ? 0 : held->second;
    if (bytes > expected_->chunk_bytes_max() || bytes_held + bytes + kMessageOverheadBytes > expected_->chunk_bytes_max()) {
      return absl::ResourceExhaustedError(absl::StrFormat("%d bytes of replica %d wait here already: %d more are over the limit of %d",
                                                          bytes_held, expected_->SenderOf(key), bytes, expected_->chunk_bytes_max()));
    }
    return absl::OkStatus();
  }
  if (key.step < step_) return absl::AlreadyExistsError("the step is over");
  if (key.step > step_ + 1) return absl::OutOfRangeError(absl::StrFormat("a message of step %d in step %d", key.step, step_));
  if (key.kind == MessageKind::kEvaluation || key.kind == MessageKind::kEvaluated) {
    const int64_t window = expected_->evaluation_window(), taken = key.step == step_ ? evaluated_ : -1;
    const int64_t last = key.kind == MessageKind::kEvaluation ? taken + 2 * window : (taken + 1) / window + 1;
    if (key.micro_batch > last) {
      return absl::OutOfRangeError(absl::StrFormat("micro-batch %d of an evaluation after %d", key.micro_batch, taken));
    }
  }
  return absl::OkStatus();
}

void Inbox::Advance(const MessageKey& taken) {
  if (taken.kind == MessageKind::kReplica) return;
  if (taken.step > step_) {
    step_ = taken.step;
    evaluated_ = -1;
    // What came again after it was taken.
    std::erase_if(messages_, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return entry.first.kind != MessageKind::kReplica && entry.first.step < step_;
    });
  }
  if (taken.step < step_) return;
  if (taken.kind == MessageKind::kEvaluation) evaluated_ = std::max(evaluated_, taken.micro_batch);
  if (taken.kind == MessageKind::kEvaluated && taken.id == kEvaluatedWindow) {
    evaluated_ = std::max(evaluated_, (taken.micro_batch + 1) * expected_->evaluation_window() - 1);
  }
}

void Inbox::Deliver(const MessageKey& key, Payload payload) {
  const base::MutexLock lock(mutex_);
  if (!cancelled_.ok()) return;
  if (expected_ != nullptr && key.kind == MessageKind::kReplica && !messages_.contains(key)) {
    chunk_bytes_[expected_->SenderOf(key)] += payload.size() + kMessageOverheadBytes;
  }
  messages_.try_emplace(key, std::move(payload));
  if (key.kind != MessageKind::kReplica) ++deliveries_;
  news_.notify_all();
}

void Inbox::Cancel(absl::Status status) {
  std::function<void(const absl::Status&)> callback;
  {
    const base::MutexLock lock(mutex_);
    if (!cancelled_.ok()) return;
    cancelled_ = status;
    messages_.clear();
    news_.notify_all();
    callback = std::move(on_cancelled_);
  }
  if (callback) callback(status);
}

void Inbox::WhenCancelled(std::function<void(const absl::Status&)> callback) {
  absl::Status cancelled;
  {
    const base::MutexLock lock(mutex_);
    cancelled = cancelled_;
    if (cancelled.ok()) {
      on_cancelled_ = std::move(callback);
      return;
    }
  }
  callback(cancelled);
}

absl::Status Inbox::status() const {
  const base::MutexLock lock(mutex_);
  return cancelled_;
}

bool Inbox::HasAll(std::span<const MessageKey> keys) const {
  const base::MutexLock lock(mutex_);
  return std::all_of(keys.begin(), keys.end(),
                     [this](const MessageKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return messages_.contains(key); });
}

absl::StatusOr<Payload> Inbox::Take(const MessageKey& key, absl::Time deadline) {
  base::UniqueLock lock(mutex_);
  const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !cancelled_.ok() || messages_.contains(key); };
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
  if (expected_ != nullptr) {
    Advance(key);
    if (key.kind == MessageKind::kReplica) chunk_bytes_[expected_->SenderOf(key)] -= payload.size() + kMessageOverheadBytes;
  }
  return payload;
}

uint64_t Inbox::deliveries() const {
  const base::MutexLock lock(mutex_);
  return deliveries_;
}

absl::Status Inbox::WaitForDelivery(uint64_t seen) {
  base::UniqueLock lock(mutex_);
  news_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !cancelled_.ok() || deliveries_ != seen; });
  return cancelled_;
}

}  // namespace fusionllm::runtime
