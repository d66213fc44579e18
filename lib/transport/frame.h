// The unit of the wire: a fixed 80-byte little-endian header and up to 64 MiB of payload.
//
// A message is cut into DATA frames; each repeats the message's header with its own offset, so a frame can be understood, checked and sent
// again by itself. Frames of one connection direction carry consecutive sequence numbers across all priorities; ACK carries the next one
// expected. The checksum (CRC-32C) covers header and payload.
//
// header: 0 magic u32 | 4 version u8 | 5 type u8 | 6 flags u8 | 7 priority u8 | 8 sequence u64 | 16 job_hash u64 | 24 step i64 |
//         32 message bytes u64 | 40 offset u64 | 48 not_before_ns i64 | 56 epoch u32 | 60 micro_batch i32 | 64 channel u32 |
//         68 payload bytes u32 | 72 direction u8, 3 zero bytes | 76 checksum u32
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/transport/message.h"
#include "lib/transport/payload.h"

namespace fusionllm::transport {

inline constexpr uint8_t kProtocolVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 80;
inline constexpr uint64_t kFramePayloadBytesMax = 64ull << 20;
inline constexpr uint64_t kMessageBytesMax = 4ull << 30;

enum class FrameType : uint8_t {
  kHello = 1,    // first frame of the dialling side; payload: Hello
  kWelcome = 2,  // the answer; payload: Hello; sequence: the next frame expected, from which the dialler resumes
  kData = 3,
  kSkip = 4,     // takes the place of a cancelled DATA frame, so that sequence numbers have no gap
  kAck = 5,      // sequence: all frames before it have been taken
  kGoodbye = 6,  // the sender closes on purpose; sequence as in an ACK, where acknowledgements flow
  kEnd = 7,      // ends a stream where the carrier has no status of its own (relay); sequence: status code, payload: message
};

struct Frame {
  FrameType type = FrameType::kData;
  bool ack_requested = false;
  uint64_t sequence = 0;
  MessageHeader message;
  uint64_t message_bytes = 0;    // of the whole message
  uint64_t offset = 0;           // of this frame's payload in the message
  std::vector<Payload> payload;  // the concatenation of these pieces
  uint32_t checksum = 0;         // set by Seal()

  size_t payload_bytes() const;
  // Bytes of header and payload; what the connection below adds (HTTP/2, TLS, IP) is not counted.
  size_t wire_bytes() const { return kFrameHeaderBytes + payload_bytes(); }
};

// Bytes on the wire of a message cut into frames of chunk_bytes.
uint64_t WireBytes(uint64_t message_bytes, uint64_t chunk_bytes);

// Computes the checksum. To be called before a frame is written.
void Seal(Frame& frame);
// DATA_LOSS when the checksum does not hold.
absl::Status Verify(const Frame& frame);

std::array<std::byte, kFrameHeaderBytes> EncodeHeader(const Frame& frame);
// All of a frame but its payload; `payload_bytes` is what came with the header. Errors: FAILED_PRECONDITION: another protocol or version;
// DATA_LOSS: truncated; OUT_OF_RANGE: absurd sizes; INVALID_ARGUMENT: unknown type or priority.
absl::StatusOr<Frame> DecodeHeader(std::span<const std::byte> header, size_t payload_bytes);

// The handshake: who speaks, to whom, on behalf of which job.
struct Hello {
  std::string from;  // endpoint names, 1 to 253 bytes
  std::string to;
  std::string build_version;  // for messages to people; peers of different builds may talk when the protocol version is the same
  uint64_t job_hash = 0;
  uint64_t incarnation = 0;  // grows with every start of an endpoint of that name
  uint64_t session = 0;      // of the dialler: tells a resumed connection from a new one
};

Payload EncodeHello(const Hello& hello);
absl::StatusOr<Hello> DecodeHello(const Frame& frame);

}  // namespace fusionllm::transport
