#include "lib/transport/grpc/frame_bytes.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "lib/base/status_macros.h"

namespace fusionllm::transport {
namespace {

// Protobuf's wire format: field number << 3 | 2 (length-delimited), then the length as a varint.
constexpr uint8_t kHeaderTag = 1 << 3 | 2;
constexpr uint8_t kPayloadTag = 2 << 3 | 2;
constexpr size_t kPrefixBytesMax = 2 + kFrameHeaderBytes + 1 + 10;
constexpr size_t kInlineBytesMax = 4096;  // a copy of this much costs less than a slice of its own
static_assert(kFrameHeaderBytes < 128, "the header's length is written in one byte");

size_t PutVarint(uint8_t* at, uint64_t value) {
  size_t n = 0;
  for (; value >= 128; value >>= 7) at[n++] = static_cast<uint8_t>(value | 128);
  at[n++] = static_cast<uint8_t>(value);
  return n;
}

// Returns the bytes read, 0 for a malformed one.
size_t GetVarint(const uint8_t* at, size_t size, uint64_t* value) {
  *value = 0;
  for (size_t n = 0; n < std::min<size_t>(size, 10); ++n) {
    *value |= static_cast<uint64_t>(at[n] & 127) << (7 * n);
    if ((at[n] & 128) == 0) return n + 1;
  }
  return 0;
}

grpc::Slice ShareSlice(const Payload& payload) {
  auto* owner = new Payload(payload);
  return grpc::Slice(
      const_cast<std::byte*>(payload.data()), payload.size(), [](void* p) { delete static_cast<Payload*>(p); }, owner);
}

}  // namespace

grpc::ByteBuffer EncodeFrame(const Frame& frame) {
  const size_t payload_bytes = frame.payload_bytes();
  std::array<uint8_t, kPrefixBytesMax + kInlineBytesMax> prefix;
  size_t n = 0;
  prefix[n++] = kHeaderTag;
  prefix[n++] = static_cast<uint8_t>(kFrameHeaderBytes);
  const auto header = EncodeHeader(frame);
  std::memcpy(prefix.data() + n, header.data(), header.size());
  n += header.size();
  std::vector<grpc::Slice> slices(1);
  if (payload_bytes > 0) {
    prefix[n++] = kPayloadTag;
    n += PutVarint(prefix.data() + n, payload_bytes);
  }
  for (const Payload& piece : frame.payload) {
    if (payload_bytes > kInlineBytesMax) {
      slices.push_back(ShareSlice(piece));
    } else if (!piece.empty()) {
      std::memcpy(prefix.data() + n, piece.data(), piece.size());
      n += piece.size();
    }
  }
  slices[0] = grpc::Slice(prefix.data(), n);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<Frame> DecodeFrame(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return absl::InvalidArgumentError("frame cannot be decompressed");
  std::array<uint8_t, kPrefixBytesMax> prefix;
  size_t have = 0, total = 0;
  for (const grpc::Slice& slice : slices) {
    const size_t take = std::min(slice.size(), prefix.size() - have);
    if (take > 0) std::memcpy(prefix.data() + have, slice.begin(), take);
    have += take;
    total += slice.size();
  }
  if (have < 2 + kFrameHeaderBytes || prefix[0] != kHeaderTag || prefix[1] != kFrameHeaderBytes) {
    return absl::InvalidArgumentError("peer sent bytes that are no frame");
  }
  size_t skip = 2 + kFrameHeaderBytes;
  if (total > skip) {
    uint64_t length = 0;
    const size_t n = prefix[skip] == kPayloadTag ? GetVarint(prefix.data() + skip + 1, have - skip - 1, &length) : 0;
    skip += 1 + n;
    if (n == 0 || length != total - skip)
      return absl::InvalidArgumentError("peer sent a frame whose payload has another length than it says");
  }
  FUSIONLLM_ASSIGN_OR_RETURN(Frame frame, DecodeHeader(std::as_bytes(std::span(prefix.data() + 2, kFrameHeaderBytes)), total - skip));
  for (grpc::Slice& slice : slices) {
    const size_t drop = std::min(skip, slice.size());
    skip -= drop;
    if (drop == slice.size()) continue;
    auto owner = std::make_shared<grpc::Slice>(std::move(slice));  // a moved short slice carries its bytes with it: take the pointer after
    const auto part = std::as_bytes(std::span(owner->begin() + drop, owner->size() - drop));
    frame.payload.emplace_back(std::move(owner), part);
  }
  return frame;
}

}  // namespace fusionllm::transport
