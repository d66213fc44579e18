#include "lib/transport/outgoing.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "lib/transport/link_samples.h"
#include "lib/transport/message.h"

namespace fusionllm::transport {
namespace {

constexpr size_t kRttFrameBytesMax = 4096;  // larger frames measure the bandwidth, not the round trip

}  // namespace

bool Outgoing::HasRoom(const MessageHeader& header, size_t bytes) const {
  return header.priority == Priority::kControl || queued_messages_ == 0 || queued_bytes_ + bytes <= limits_.queue_bytes_max;
}

void Outgoing::Push(const MessageHeader& header, Payload payload) {
  queued_bytes_ += payload.size();
  ++queued_messages_;
  queues_[static_cast<size_t>(header.priority)].push_back({header, std::move(payload)});
}

bool Outgoing::HasFrame() const {
  if (written_ < unacked_.size() || ack_due_) return true;
  if (queued_messages_ == 0) return false;
  // A full window still lets control messages pass, or a slow bulk transfer would delay the order to stop it.
  return unacked_bytes_ < limits_.unacked_bytes_max || !queues_[0].empty();
}

Frame Outgoing::Cut(int priority) {
  auto& queue = queues_[static_cast<size_t>(priority)];
  Message& message = queue.front();
  const size_t bytes = std::min(limits_.chunk_bytes, message.payload.size() - message.sent);
  Frame frame;
  frame.message = message.header;
  frame.message_bytes = message.payload.size();
  frame.offset = message.sent;
  if (bytes > 0) frame.payload.push_back(message.payload.Slice(message.sent, bytes));
  message.sent += bytes;
  queued_bytes_ -= bytes;
  if (message.sent == message.payload.size()) {
    queue.pop_front();
    --queued_messages_;
    ++messages_sent_;
  }
  return frame;
}

std::optional<Frame> Outgoing::Next(double now_s) {
  if (!HasFrame()) return std::nullopt;
  if (written_ < unacked_.size()) {
    Sent& sent = unacked_[written_++];
    sent.repeated = true;
    sent.frame.ack_requested = true;
    return sent.frame;
  }
  Frame frame;
  if (queued_messages_ == 0) {
    frame.type = FrameType::kSkip;
  } else {
    int priority = 0;
    while (queues_[static_cast<size_t>(priority)].empty()) ++priority;
    frame = Cut(priority);
  }
  frame.sequence = next_sequence_++;
  bytes_without_ack_request_ += frame.wire_bytes();
  // Acknowledgements are asked for when the sender falls silent, and often enough to keep the window open.
  frame.ack_requested = queued_messages_ == 0 || bytes_without_ack_request_ >= std::min<size_t>(limits_.unacked_bytes_max / 8, 256u << 10);
  if (frame.ack_requested) bytes_without_ack_request_ = 0;
  ack_due_ = false;
  const bool idle = unacked_.empty();
  if (idle) delivered_at_s_ = now_s;
  unacked_bytes_ += frame.wire_bytes();
  unacked_.push_back({frame, now_s, delivered_bytes_, delivered_at_s_, idle, false});
  written_ = unacked_.size();
  return frame;
}

// Delivery rate as in BBR (draft-cheng-iccrg-delivery-rate-estimation): bytes acknowledged while the frame was under way, over that time. A
// frame that broke a silence has the round trip in its time, which is taken out where it is known.
void Outgoing::TakeSample(const Sent& sent, double now_s) {
  if (sent.repeated) return;
  const double elapsed = now_s - sent.at_s;
  if (sent.frame.wire_bytes() <= kRttFrameBytesMax && sent.after_idle) rtt_s_ = Smooth(rtt_s_, elapsed);
  const double bytes = delivered_bytes_ - sent.delivered_bytes;
  double duration = now_s - sent.delivered_at_s;
  if (sent.after_idle && rtt_s_ < 0.9 * duration) duration -= rtt_s_;
  if (bytes < kRateSampleBytesMin || !(duration > 0)) return;
  bandwidth_bytes_per_s_ = Smooth(bandwidth_bytes_per_s_, bytes / duration);
  ++bandwidth_samples_;
}

absl::Status Outgoing::Acknowledge(uint64_t sequence, double now_s) {
  if (sequence > next_sequence_) {
    return absl::DataLossError(absl::StrFormat("peer acknowledges frame %d, but only %d were sent", sequence, next_sequence_));
  }
  std::optional<Sent> last;
  while (!unacked_.empty() && unacked_.front().frame.sequence < sequence) {
    const size_t bytes = unacked_.front().frame.wire_bytes();
    unacked_bytes_ -= bytes;
    delivered_bytes_ += static_cast<double>(bytes);
    last = std::move(unacked_.front());
    unacked_.pop_front();
    if (written_ > 0) --written_;
  }
  if (last.has_value()) {
    TakeSample(*last, now_s);
    delivered_at_s_ = now_s;
  }
  return absl::OkStatus();
}

absl::Status Outgoing::Resume(uint64_t sequence, double now_s) {
  const uint64_t first = unacked_.empty() ? next_sequence_ : unacked_.front().frame.sequence;
  if (sequence < first) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "peer has lost the session: it wants frame %d again, which it acknowledged; the oldest kept is %d", sequence, first));
  }
  if (absl::Status status = Acknowledge(sequence, now_s); !status.ok()) return status;
  written_ = 0;
  return absl::OkStatus();
}

void Outgoing::CancelEpoch(uint32_t epoch) {
  for (auto& queue : queues_) {
    for (const Message& message : queue) {
      if (!IsStale(message.header, epoch)) continue;
      queued_bytes_ -= message.payload.size() - message.sent;
      --queued_messages_;
    }
    std::erase_if(queue, [&](const Message& message) { return IsStale(message.header, epoch); });
  }
  for (Sent& sent : unacked_) {
    if (sent.frame.type != FrameType::kData || !IsStale(sent.frame.message, epoch)) continue;
    unacked_bytes_ -= sent.frame.payload_bytes();
    sent.frame.payload.clear();
    sent.frame.message_bytes = 0;
    sent.frame.offset = 0;
    sent.frame.type = FrameType::kSkip;
  }
  ack_due_ = queued_messages_ == 0 && !unacked_.empty() && !unacked_.back().frame.ack_requested;
}

}  // namespace fusionllm::transport
