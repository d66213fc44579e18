// The bytes of a gRPC message that should be a frame, in slices as the network cut them: the first byte says how long these are.
#include "lib/base/testing/fuzz.h"
#include "lib/transport/grpc/frame_bytes.h"

namespace fusionllm::transport {
namespace {

grpc::ByteBuffer Sliced(absl::string_view bytes, size_t length) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += length) slices.emplace_back(std::string(bytes.substr(at, length)));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string Joined(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  FUZZ_CHECK(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

std::string SeedOf(char length, std::string payload) {
  Frame frame;
  frame.message_bytes = payload.size();
  frame.payload = {Payload::Of(std::move(payload))};
  Seal(frame);
  return length + Joined(EncodeFrame(frame));
}

std::vector<std::string> Seeds() {
  return {SeedOf('\x01', "hello"), SeedOf('\x1f', std::string(300, 'x')), SeedOf('\xff', std::string(5000, 'y')), SeedOf('\x50', "")};
}

std::vector<std::string> Words() { return {"\x0a\x50", "\x12", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x80\x80\x80\x80"}; }

bool Accepts(absl::string_view input) {
  if (input.empty()) return false;
  const size_t length = std::max<size_t>(1, static_cast<unsigned char>(input[0]));
  const absl::StatusOr<Frame> frame = DecodeFrame(Sliced(input.substr(1), length));
  if (!frame.ok()) return false;
  FUZZ_CHECK(frame->payload_bytes() + 2 + kFrameHeaderBytes <= input.size() - 1);
  const absl::StatusOr<Frame> again = DecodeFrame(EncodeFrame(*frame));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(EncodeHeader(*again) == EncodeHeader(*frame));
  FUZZ_CHECK(again->payload_bytes() == frame->payload_bytes());
  Verify(*frame).IgnoreError();  // reads every byte
  return true;
}

}  // namespace
}  // namespace fusionllm::transport

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {transport::Seeds, transport::Words, transport::Accepts}; }
