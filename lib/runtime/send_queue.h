// Hands messages to the port as they become whole, on a thread of its own, so that the thread which asks a device for them need not wait.
// Internal to lib/runtime.
//
// Push, Drain and the end are for one thread; at most kMessagesUnderWay wait here, then Push does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/compression/tensor_codec.h"
#include "lib/runtime/message.h"

namespace fusionllm::runtime {

class SendQueue {
 public:
  static constexpr size_t kMessagesUnderWay = 16;

  struct Message {
    int to_stage = 0;
    MessageKey key;
    std::unique_ptr<compression::PendingMessage> pending;
    // The error to tell instead of one of `pending`.
    std::function<absl::Status(const absl::Status&)> explain;
  };

  // `failed` is called once, on the queue's thread, with the first error; what is pushed afterwards is dropped. The port outlives the
  // queue.
  SendQueue(MessagePort& port, int stages, std::function<void(const absl::Status&)> failed);
  // Drops what does not wait for the port yet.
  ~SendQueue();
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  void Push(Message message);
  // Blocks until all that was pushed is with the port. Errors: the first, of a message or of MessagePort::Send.
  absl::Status Drain();
  // Wire bytes handed to the port, by receiving stage. Thread-safe.
  std::vector<int64_t> sent_bytes() const;

 private:
  void Work();
  absl::Status Hand(Message message);

  MessagePort& port_;
  const std::function<void(const absl::Status&)> failed_;
  mutable base::Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // with one that is no longer in messages_
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<int64_t> sent_bytes_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace fusionllm::runtime
