#include "lib/transport/incoming.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"

namespace fusionllm::transport {
namespace {

// A message may claim to be long in 80 bytes: memory beyond this is taken as its bytes arrive.
constexpr uint64_t kTrustedBytes = uint64_t{64} << 20;

}  // namespace

void Incoming::Grow(Partial& partial, uint64_t bytes) {
  if (bytes <= partial.buffer.size()) return;
  tensor::Buffer larger(std::min<uint64_t>(partial.total, std::max<uint64_t>(bytes, 2 * partial.buffer.size())));
  std::memcpy(larger.data(), partial.buffer.data(), partial.received);
  partial.buffer = std::move(larger);
}

absl::StatusOr<std::optional<Incoming::Message>> Incoming::Take(Frame frame, uint32_t oldest_epoch) {
  FUSIONLLM_RETURN_IF_ERROR(Verify(frame));
  if (frame.sequence != next_sequence_) {
    return absl::DataLossError(absl::StrFormat("frame %d came where frame %d was due", frame.sequence, next_sequence_));
  }
  ++next_sequence_;
  if (frame.type == FrameType::kSkip) return std::nullopt;
  if (frame.message_bytes > message_bytes_max_) {
    return absl::OutOfRangeError(
        absl::StrFormat("message of %d bytes is over this endpoint's limit of %d", frame.message_bytes, message_bytes_max_));
  }
  Partial& partial = partial_[static_cast<size_t>(frame.message.priority)];
  if (frame.message.epoch < oldest_epoch && frame.message.priority != Priority::kControl) {
    partial = Partial();
    return std::nullopt;
  }
  if (frame.offset == 0) {
    // A half-received message gives way: its sender cancelled it.
    const bool admitted = !admit_ || admit_(frame.message, frame.message_bytes);
    const uint64_t at_first = admitted ? std::min<uint64_t>(frame.message_bytes, kTrustedBytes) : 0;
    partial = Partial{true, admitted, frame.message, tensor::Buffer(at_first), frame.message_bytes, 0};
  } else if (!partial.active || frame.offset != partial.received || frame.message_bytes != partial.total ||
             frame.message != partial.header) {
    return absl::DataLossError(absl::StrFormat("frame %d holds byte %d of a message of which %d bytes were received", frame.sequence,
                                               frame.offset, partial.active ? partial.received : 0));
  }
  if (frame.payload_bytes() == 0 && frame.message_bytes > 0) {
    return absl::DataLossError(absl::StrFormat("frame %d of a message of %d bytes is empty", frame.sequence, frame.message_bytes));
  }
  if (frame.payload_bytes() > partial.total - partial.received) {
    return absl::DataLossError(absl::StrFormat("frame %d goes beyond the %d bytes of its message", frame.sequence, partial.total));
  }
  if (partial.admitted) Grow(partial, partial.received + frame.payload_bytes());
  for (const Payload& piece : frame.payload) {
    if (partial.admitted && !piece.empty()) std::memcpy(partial.buffer.data() + partial.received, piece.data(), piece.size());
    partial.received += piece.size();
  }
  if (partial.received < partial.total) return std::nullopt;
  if (!partial.admitted) {
    partial = Partial();
    return std::nullopt;
  }
  Message message(partial.header, Payload::Of(std::move(partial.buffer), partial.total));
  partial = Partial();
  return message;
}

}  // namespace fusionllm::transport
