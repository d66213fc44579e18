// The receiving half of a peer: sequence check, reassembly by priority.
//
// Plain data without locks or threads: the thread that reads the peer's stream owns it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "lib/tensor/tensor.h"
#include "lib/transport/frame.h"

namespace fusionllm::transport {

class Incoming {
 public:
  using Message = std::pair<MessageHeader, Payload>;

  // Whether a message is to be received: asked when it begins, before memory is taken for it.
  using Admit = std::function<bool(const MessageHeader& header, uint64_t bytes)>;

  // `admit`: empty: all are.
  explicit Incoming(uint64_t message_bytes_max = kMessageBytesMax, Admit admit = {})
      : message_bytes_max_(message_bytes_max), admit_(std::move(admit)) {}

  // Takes a DATA or SKIP frame; returns the message that it completes, if any. Messages of epochs < oldest_epoch are dropped (control
  // excepted), and those that are not admitted. Errors mean that the peer cannot be trusted: a gap in sequence numbers, a chunk out of
  // place, a corrupt frame, a message over the limit.
  absl::StatusOr<std::optional<Message>> Take(Frame frame, uint32_t oldest_epoch);

  uint64_t next_sequence() const { return next_sequence_; }

 private:
  struct Partial {
    bool active = false;
    bool admitted = true;
    MessageHeader header;
    tensor::Buffer buffer;
    uint64_t total = 0;
    uint64_t received = 0;
  };

  static void Grow(Partial& partial, uint64_t bytes);

  uint64_t message_bytes_max_;
  Admit admit_;
  uint64_t next_sequence_ = 0;
  std::array<Partial, kPriorityCount> partial_;
};

}  // namespace fusionllm::transport
