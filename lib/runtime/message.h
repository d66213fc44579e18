// What stages say to each other, without saying how it travels.
//
// The runtime knows no transport: it sends through a MessagePort and takes what has arrived from an Inbox. The executor service joins both
// to a network; tests join stages of one process directly.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace fusionllm::runtime {

enum class MessageKind : uint8_t {
  kValue,           // a cut edge of the training graph: activation, label or gradient; id = value id
  kEvaluation,      // the same for a forward pass of an evaluation; id = value id
  kPerUseGradient,  // gradient of one use of a parameter shared between stages; id = index in TrainingGraph::uses
  kReport,          // to stage 0 at the end of a step: sums of squares and the loss; id = sender's stage
  kDecision,        // from stage 0: the norm and what follows the step; id = 0
  kReplica,         // between replicas of a stage: a chunk of their communicator (collective::PointToPointChannel), which names it
  kEvaluated,       // from the stage that owns the loss, how far it is in an evaluation: id = kEvaluatedAll or kEvaluatedWindow
  kEvaluationSize,  // from the lowest stage that reads data to all others, when an evaluation begins: its samples, an int64; id = 0
};
inline constexpr int kMessageKinds = 8;
// Of kEvaluated: to stage 0, all of it; to all other stages, the window of micro-batches whose number is the key's micro_batch.
inline constexpr int32_t kEvaluatedAll = 0, kEvaluatedWindow = 1;

// Names a message within one plan epoch. Unique per (sender, receiver).
struct MessageKey {
  int64_t step = 0;
  MessageKind kind = MessageKind::kValue;
  int32_t micro_batch = 0;
  int32_t id = 0;
  auto operator<=>(const MessageKey&) const = default;
};

using Payload = std::vector<std::byte>;

class MessagePort {
 public:
  virtual ~MessagePort() = default;
  // Hands a message over; returns before it has arrived. Blocks while the outgoing queue is full. Messages to one stage may overtake
  // each other. Errors: Unavailable when the peer is lost, Cancelled when the epoch is over.
  virtual absl::Status Send(int to_stage, const MessageKey& key, Payload payload) = 0;
};

class ExpectedMessages;

// Mailbox of one stage. Thread-safe: transport threads deliver, the stage's own thread takes.
// Honest senders bound it: a stage has no more than in-flight micro-batches under way, a replica no more than the chunks that its
// communicator lets run ahead. Where senders are other machines, Expect bounds it for each of them: one message of each edge, micro-batch
// and step, of this step and the next, and so many bytes of chunks.
class Inbox {
 public:
  Inbox();
  ~Inbox();

  // What CheckDelivery judges by from now on; steps before `first_step` are over. Before the first delivery, once.
  void Expect(std::unique_ptr<const ExpectedMessages> expected, int64_t first_step);
  // Whether a message may be delivered that the peer at `place` (ExpectedMessages) sent. Errors: ExpectedMessages::Check's; OutOfRange for
  // a step or micro-batch too far ahead; AlreadyExists for one of a step that is over, or that is here already; ResourceExhausted where the
  // peer's chunks are more than it is to have here; PermissionDenied for all where Expect was not called: stages of one process deliver
  // without asking.
  absl::Status CheckDelivery(int place, const MessageKey& key, uint64_t bytes) const;
  // A second message of the same key is dropped: a reconnecting transport may repeat itself. After Cancel all messages are dropped.
  void Deliver(const MessageKey& key, Payload payload);

  // Ends every wait, now and later, with `status` (not OK). The first call decides. Calls what WhenCancelled was given, which may send.
  void Cancel(absl::Status status);
  // Called once with what Cancel said, on its thread; at once where that was before. For waits of the stage that are none of the inbox's,
  // which end with it. One at most.
  void WhenCancelled(std::function<void(const absl::Status&)> callback);

  // OK, or what Cancel said.
  absl::Status status() const;
  bool HasAll(std::span<const MessageKey> keys) const;
  // Blocks until the message is there or the inbox is cancelled, or, with a DeadlineExceeded, until `deadline`.
  absl::StatusOr<Payload> Take(const MessageKey& key, absl::Time deadline = absl::InfiniteFuture());
  // Counts deliveries but for chunks of replicas, which are waited for by name, so that a caller can wait for news without missing any.
  uint64_t deliveries() const;
  // Blocks until deliveries() != seen, or cancelled.
  absl::Status WaitForDelivery(uint64_t seen);

 private:
  void Advance(const MessageKey& taken) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable base::Mutex mutex_;
  std::condition_variable news_;
  std::unique_ptr<const ExpectedMessages> expected_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;                     // the last that a message was taken of
  int32_t evaluated_ ABSL_GUARDED_BY(mutex_) = -1;               // micro-batch of the evaluation after it that was taken last
  std::map<int, uint64_t> chunk_bytes_ ABSL_GUARDED_BY(mutex_);  // held, by replica; each chunk counts a little more than it has
  std::map<MessageKey, Payload> messages_ ABSL_GUARDED_BY(mutex_);
  uint64_t deliveries_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const absl::Status&)> on_cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::runtime
