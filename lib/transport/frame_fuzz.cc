// Frames and handshakes as a peer may send them. The first byte chooses: even a header with its payload, odd the payload of a handshake.
#include <cstring>
#include <optional>
#include <span>

#include "lib/base/testing/fuzz.h"
#include "lib/transport/frame.h"
#include "lib/transport/incoming.h"

namespace fusionllm::transport {
namespace {

constexpr uint64_t kMessageLimit = 1 << 16;

std::string Text(const Payload& payload) { return std::string(payload.text().data(), payload.size()); }

std::string SeedOf(Frame frame, absl::string_view payload) {
  frame.payload = {Payload::Of(std::string(payload))};
  Seal(frame);
  const auto header = EncodeHeader(frame);
  return "F" + std::string(reinterpret_cast<const char*>(header.data()), header.size()) + std::string(payload);
}

bool OneHello(absl::string_view bytes) {
  Frame frame;
  frame.payload = {Payload::Of(std::string(bytes))};
  const absl::StatusOr<Hello> hello = DecodeHello(frame);
  if (hello.ok()) FUZZ_CHECK(Text(EncodeHello(*hello)) == bytes);
  return hello.ok();
}

bool OneFrame(absl::string_view bytes) {
  const std::span all(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const size_t header_bytes = std::min(bytes.size(), kFrameHeaderBytes);
  absl::StatusOr<Frame> frame = DecodeHeader(all.first(header_bytes), bytes.size() - header_bytes);
  if (!frame.ok()) return false;
  frame->payload = {Payload::CopyOf(all.subspan(kFrameHeaderBytes))};
  auto again = EncodeHeader(*frame);
  std::memcpy(again.data() + 73, bytes.data() + 73, 3);          // padding
  again[6] |= static_cast<std::byte>(bytes[6]) & ~std::byte{1};  // flags without a meaning
  FUZZ_CHECK(std::memcmp(again.data(), bytes.data(), kFrameHeaderBytes) == 0);
  if (frame->type != FrameType::kData && frame->type != FrameType::kSkip) return true;
  // As a peer that makes its checksums right, twice: a second message may give way to the first or collide with it.
  Incoming incoming(kMessageLimit);
  for (uint64_t sequence = 0; sequence < 2; ++sequence) {
    frame->sequence = sequence;
    Seal(*frame);
    const absl::StatusOr<std::optional<Incoming::Message>> message = incoming.Take(*frame, frame->message.epoch % 3);
    if (!message.ok()) return false;
    if (message->has_value()) FUZZ_CHECK((*message)->second.size() == frame->message_bytes);
  }
  return true;
}

std::vector<std::string> Seeds() {
  Frame whole;
  whole.sequence = 41;
  whole.message = {.job_hash = 5, .epoch = 6, .step = -7, .micro_batch = -8, .channel = 9, .direction = 1, .priority = Priority::kTensor};
  whole.message_bytes = 11;
  Frame first = whole;
  first.message_bytes = 1000;
  first.ack_requested = true;
  Frame ack;
  ack.type = FrameType::kAck;
  ack.sequence = 7;
  return {SeedOf(whole, "hello world"), SeedOf(first, "hello world"), SeedOf(ack, ""),
          "G" + Text(EncodeHello({"a", "b", "build", 1, 2, 3}))};
}

std::vector<std::string> Words() { return {std::string(8, '\0'), std::string(8, '\xff'), std::string("\0\0\0\x04", 4)}; }

bool Accepts(absl::string_view input) {
  if (input.empty()) return false;
  return input[0] % 2 == 0 ? OneFrame(input.substr(1)) : OneHello(input.substr(1));
}

}  // namespace
}  // namespace fusionllm::transport

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {transport::Seeds, transport::Words, transport::Accepts}; }
