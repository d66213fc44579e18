// The sending half of a peer: queues by priority, cutting into frames, the window of unacknowledged frames, resumption.
//
// Plain data without locks or threads: its owner guards it. Time comes in as CLOCK_MONOTONIC seconds and serves the estimates only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/status/status.h"
#include "lib/transport/frame.h"

namespace fusionllm::transport {

struct OutgoingLimits {
  size_t queue_bytes_max = 64u << 20;
  size_t unacked_bytes_max = 32u << 20;  // must cover bandwidth x delay: 1 Gb/s x 100 ms = 12.5 MB
  size_t chunk_bytes = 1u << 20;
};

class Outgoing {
 public:
  explicit Outgoing(OutgoingLimits limits) : limits_(limits) {}

  // Room for a message: anything fits an empty queue; control messages always fit.
  bool HasRoom(const MessageHeader& header, size_t bytes) const;
  void Push(const MessageHeader& header, Payload payload);

  // True when Next() would return a frame.
  bool HasFrame() const;
  // True when nothing is queued and everything sent is acknowledged.
  bool drained() const { return queued_messages_ == 0 && unacked_.empty() && !ack_due_; }
  // The next frame for the wire, unsealed: first what a new connection must repeat, then the most urgent message's next chunk.
  std::optional<Frame> Next(double now_s);

  // All frames before `sequence` have arrived. Error: the peer acknowledges what was never sent.
  absl::Status Acknowledge(uint64_t sequence, double now_s);
  // A new connection to the same session starts at `sequence`. Error: the peer has lost frames that it acknowledged, or claims unsent ones.
  absl::Status Resume(uint64_t sequence, double now_s);

  void CancelEpoch(uint32_t epoch);

  uint64_t next_sequence() const { return next_sequence_; }
  uint64_t messages_sent() const { return messages_sent_; }
  double bandwidth_bytes_per_s() const { return bandwidth_bytes_per_s_; }
  uint64_t bandwidth_samples() const { return bandwidth_samples_; }
  double rtt_s() const { return rtt_s_; }

 private:
  struct Message {
    MessageHeader header;
    Payload payload;
    size_t sent = 0;
  };
  struct Sent {
    Frame frame;
    double at_s;
    double delivered_bytes;  // as known when the frame was sent, for a rate sample when it is acknowledged
    double delivered_at_s;
    bool after_idle;
    bool repeated;
  };

  Frame Cut(int priority);
  void TakeSample(const Sent& sent, double now_s);

  OutgoingLimits limits_;
  std::array<std::deque<Message>, kPriorityCount> queues_;
  size_t queued_bytes_ = 0;
  size_t queued_messages_ = 0;
  std::deque<Sent> unacked_;
  size_t unacked_bytes_ = 0;
  size_t written_ = 0;  // frames of unacked_ that the present connection has carried
  uint64_t next_sequence_ = 0;
  size_t bytes_without_ack_request_ = 0;
  bool ack_due_ = false;  // a cancelled queue left frames behind for which no acknowledgement was asked

  uint64_t messages_sent_ = 0;
  double delivered_bytes_ = 0;
  double delivered_at_s_ = 0;
  double bandwidth_bytes_per_s_ = 0;
  uint64_t bandwidth_samples_ = 0;
  double rtt_s_ = 0;
};

}  // namespace fusionllm::transport
