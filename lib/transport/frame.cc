#include "lib/transport/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/transport/crc32c.h"

namespace fusionllm::transport {
namespace {

constexpr uint32_t kMagic = 0x544c4c46;  // "FLLT"
constexpr uint8_t kFlagAckRequested = 1;
constexpr size_t kNameBytesMax = 253;  // a DNS name, since names are certificate subjects
static_assert(std::endian::native == std::endian::little, "the wire is little-endian and written by memcpy");

template <typename T>
void Put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}
template <typename T>
T Get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

uint32_t Checksum(const Frame& frame) {
  auto header = EncodeHeader(frame);
  Put<uint32_t>(header.data() + 76, 0);
  uint32_t crc = ExtendCrc32c(0, header);
  for (const Payload& piece : frame.payload) crc = ExtendCrc32c(crc, piece.bytes());
  return crc;
}

// Strings and numbers of a handshake, with bounds.
class HelloReader {
 public:
  explicit HelloReader(absl::string_view bytes) : rest_(bytes) {}
  bool Read(uint64_t* value) {
    if (rest_.size() < 8) return false;
    std::memcpy(value, rest_.data(), 8);
    rest_.remove_prefix(8);
    return true;
  }
  bool Read(std::string* value, size_t bytes_min) {
    uint64_t size = 0;
    if (!Read(&size) || size < bytes_min || size > kNameBytesMax || size > rest_.size()) return false;
    value->assign(rest_.data(), size);
    rest_.remove_prefix(size);
    return true;
  }
  bool done() const { return rest_.empty(); }

 private:
  absl::string_view rest_;
};

void Append(std::string& out, uint64_t value) { out.append(reinterpret_cast<const char*>(&value), 8); }
void Append(std::string& out, absl::string_view text) {
  Append(out, static_cast<uint64_t>(text.size()));
  out.append(text.data(), text.size());
}

}  // namespace

size_t Frame::payload_bytes() const {
  size_t total = 0;
  for (const Payload& piece : payload) total += piece.size();
  return total;
}

uint64_t WireBytes(uint64_t message_bytes, uint64_t chunk_bytes) {
  const uint64_t frames = std::max<uint64_t>(1, (message_bytes + chunk_bytes - 1) / chunk_bytes);
  return message_bytes + frames * kFrameHeaderBytes;
}

void Seal(Frame& frame) { frame.checksum = Checksum(frame); }

absl::Status Verify(const Frame& frame) {
  const uint32_t actual = Checksum(frame);
  if (actual == frame.checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("frame %d is corrupt: its checksum says %08x, its %d payload bytes give %08x", frame.sequence,
                                             frame.checksum, frame.payload_bytes(), actual));
}

std::array<std::byte, kFrameHeaderBytes> EncodeHeader(const Frame& frame) {
  std::array<std::byte, kFrameHeaderBytes> header{};
  std::byte* h = header.data();
  const MessageHeader& m = frame.message;
  Put(h, kMagic);
  Put(h + 4, kProtocolVersion);
  Put(h + 5, frame.type);
  Put<uint8_t>(h + 6, frame.ack_requested ? kFlagAckRequested : 0);
  Put(h + 7, m.priority);
  Put(h + 8, frame.sequence);
  Put(h + 16, m.job_hash);
  Put(h + 24, m.step);
  Put(h + 32, frame.message_bytes);
  Put(h + 40, frame.offset);
  Put(h + 48, m.not_before_ns);
  Put(h + 56, m.epoch);
  Put(h + 60, m.micro_batch);
  Put(h + 64, m.channel);
  Put(h + 68, static_cast<uint32_t>(frame.payload_bytes()));
  Put(h + 72, m.direction);
  Put(h + 76, frame.checksum);
  return header;
}

absl::StatusOr<Frame> DecodeHeader(std::span<const std::byte> header, size_t payload_bytes) {
  if (header.size() != kFrameHeaderBytes) {
    return absl::DataLossError(absl::StrFormat("frame header has %d bytes instead of %d", header.size(), kFrameHeaderBytes));
  }
  const std::byte* h = header.data();
  if (Get<uint32_t>(h) != kMagic) return absl::FailedPreconditionError("peer does not speak the FusionLLM transport protocol");
  if (const auto version = Get<uint8_t>(h + 4); version != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("peer speaks transport protocol version %d, this build speaks version %d: run the same release on both", version,
                        kProtocolVersion));
  }
  Frame frame;
  const auto type = Get<uint8_t>(h + 5);
  if (type < static_cast<uint8_t>(FrameType::kHello) || type > static_cast<uint8_t>(FrameType::kEnd)) {
    return absl::InvalidArgumentError(absl::StrFormat("frame has the unknown type %d", type));
  }
  frame.type = static_cast<FrameType>(type);
  frame.ack_requested = (Get<uint8_t>(h + 6) & kFlagAckRequested) != 0;
  const auto priority = Get<uint8_t>(h + 7);
  if (priority >= kPriorityCount) return absl::InvalidArgumentError(absl::StrFormat("frame has the unknown priority %d", priority));
  frame.message.priority = static_cast<Priority>(priority);
  frame.sequence = Get<uint64_t>(h + 8);
  frame.message.job_hash = Get<uint64_t>(h + 16);
  frame.message.step = Get<int64_t>(h + 24);
  frame.message_bytes = Get<uint64_t>(h + 32);
  frame.offset = Get<uint64_t>(h + 40);
  frame.message.not_before_ns = Get<int64_t>(h + 48);
  frame.message.epoch = Get<uint32_t>(h + 56);
  frame.message.micro_batch = Get<int32_t>(h + 60);
  frame.message.channel = Get<uint32_t>(h + 64);
  const uint64_t declared = Get<uint32_t>(h + 68);
  frame.message.direction = Get<uint8_t>(h + 72);
  frame.checksum = Get<uint32_t>(h + 76);
  if (declared > kFramePayloadBytesMax) {
    return absl::OutOfRangeError(
        absl::StrFormat("frame %d claims %d payload bytes; the most is %d", frame.sequence, declared, kFramePayloadBytesMax));
  }
  if (declared != payload_bytes) {
    return absl::DataLossError(absl::StrFormat("frame %d claims %d payload bytes but brought %d", frame.sequence, declared, payload_bytes));
  }
  if (frame.message_bytes > kMessageBytesMax) {
    return absl::OutOfRangeError(absl::StrFormat("frame %d belongs to a message of %d bytes; the most is %d", frame.sequence,
                                                 frame.message_bytes, kMessageBytesMax));
  }
  if (frame.type == FrameType::kData && (frame.offset > frame.message_bytes || payload_bytes > frame.message_bytes - frame.offset)) {
    return absl::OutOfRangeError(absl::StrFormat("frame %d covers bytes %d to %d of a message of %d bytes", frame.sequence, frame.offset,
                                                 frame.offset + payload_bytes, frame.message_bytes));
  }
  return frame;
}

Payload EncodeHello(const Hello& hello) {
  std::string out;
  Append(out, hello.job_hash);
  Append(out, hello.incarnation);
  Append(out, hello.session);
  Append(out, hello.from);
  Append(out, hello.to);
  Append(out, hello.build_version);
  return Payload::Of(std::move(out));
}

absl::StatusOr<Hello> DecodeHello(const Frame& frame) {
  if (frame.payload_bytes() > 4096) return absl::InvalidArgumentError("handshake is longer than 4096 bytes");
  std::string bytes;
  for (const Payload& piece : frame.payload) bytes.append(piece.text().data(), piece.size());
  HelloReader reader(bytes);
  Hello hello;
  if (!reader.Read(&hello.job_hash) || !reader.Read(&hello.incarnation) || !reader.Read(&hello.session) || !reader.Read(&hello.from, 1) ||
      !reader.Read(&hello.to, 1) || !reader.Read(&hello.build_version, 0) || !reader.done()) {
    return absl::InvalidArgumentError("handshake is malformed");
  }
  return hello;
}

}  // namespace fusionllm::transport
