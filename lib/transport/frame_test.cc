#include "lib/transport/frame.h"

#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::transport {
namespace {

using ::testing::HasSubstr;

Frame Sample() {
  Frame frame;
  frame.ack_requested = true;
  frame.sequence = 41;
  frame.message = {.job_hash = 5,
                   .epoch = 6,
                   .step = -7,
                   .micro_batch = -8,
                   .channel = 9,
                   .direction = 1,
                   .priority = Priority::kParameterSync,
                   .not_before_ns = 10};
  frame.message_bytes = 1000;
  frame.offset = 500;
  frame.payload = {Payload::Of(std::string("hello ")), Payload::Of(std::string("world"))};
  Seal(frame);
  return frame;
}

TEST(Frame, AHeaderSurvivesEncodingAndDecoding) {
  const Frame frame = Sample();
  const auto header = EncodeHeader(frame);
  absl::StatusOr<Frame> decoded = DecodeHeader(header, frame.payload_bytes());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->type, frame.type);
  EXPECT_EQ(decoded->ack_requested, frame.ack_requested);
  EXPECT_EQ(decoded->sequence, frame.sequence);
  EXPECT_EQ(decoded->message, frame.message);
  EXPECT_EQ(decoded->message_bytes, frame.message_bytes);
  EXPECT_EQ(decoded->offset, frame.offset);
  decoded->payload = {Payload::Of(std::string("hello world"))};  // cut differently
  EXPECT_TRUE(Verify(*decoded).ok());
}

TEST(Frame, EveryFlippedBitOfHeaderOrPayloadIsNoticed) {
  const Frame frame = Sample();
  const auto header = EncodeHeader(frame);
  for (size_t bit = 0; bit < header.size() * 8; ++bit) {
    if (bit / 8 >= 73 && bit / 8 < 76) continue;  // padding
    if (bit / 8 == 6 && bit % 8 != 0) continue;   // flags without a meaning
    auto bad = header;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    absl::StatusOr<Frame> decoded = DecodeHeader(bad, frame.payload_bytes());
    if (!decoded.ok()) continue;
    decoded->payload = frame.payload;
    EXPECT_EQ(Verify(*decoded).code(), absl::StatusCode::kDataLoss) << "bit " << bit;
  }
  Frame bad = frame;
  bad.payload[1] = Payload::Of(std::string("worle"));
  EXPECT_EQ(Verify(bad).code(), absl::StatusCode::kDataLoss);
}

struct Absurdity {
  const char* name;
  size_t at;
  uint64_t value;
  size_t bytes;
  absl::StatusCode code;
  const char* word;
};

TEST(Frame, AbsurdHeadersAreRefusedByName) {
  const Absurdity cases[] = {
      {"foreign magic", 0, 0x50545448, 4, absl::StatusCode::kFailedPrecondition, "protocol"},
      {"other version", 4, 9, 1, absl::StatusCode::kFailedPrecondition, "version 9"},
      {"unknown type", 5, 99, 1, absl::StatusCode::kInvalidArgument, "type 99"},
      {"unknown priority", 7, 4, 1, absl::StatusCode::kInvalidArgument, "priority 4"},
      {"payload over 64 MiB", 68, (64u << 20) + 1, 4, absl::StatusCode::kOutOfRange, "67108865"},
      {"payload of another length", 68, 12, 4, absl::StatusCode::kDataLoss, "12 payload bytes"},
      {"message over 4 GiB", 32, (4ull << 30) + 1, 8, absl::StatusCode::kOutOfRange, "4294967297"},
      {"chunk past the end", 40, 990, 8, absl::StatusCode::kOutOfRange, "1001"},
      {"offset that overflows", 40, ~0ull, 8, absl::StatusCode::kOutOfRange, "1000"},
  };
  const Frame frame = Sample();
  for (const Absurdity& absurdity : cases) {
    SCOPED_TRACE(absurdity.name);
    auto header = EncodeHeader(frame);
    std::memcpy(header.data() + absurdity.at, &absurdity.value, absurdity.bytes);
    const absl::Status status = DecodeHeader(header, frame.payload_bytes()).status();
    EXPECT_EQ(status.code(), absurdity.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absurdity.word));
  }
  const auto header = EncodeHeader(frame);
  EXPECT_EQ(DecodeHeader(std::span(header).first(79), 11).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Frame, AHandshakeCutOrWithAnotherLengthIsRefused) {
  const Payload good = EncodeHello({"a", "b", "build", 1, 2, 3});
  const auto decoded = [](std::string bytes) {
    Frame frame;
    frame.payload = {Payload::Of(std::move(bytes))};
    return DecodeHello(frame);
  };
  const std::string whole(good.text().data(), good.size());
  ASSERT_TRUE(decoded(whole).ok());
  EXPECT_EQ(decoded(whole)->build_version, "build");
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(decoded(whole.substr(0, length)).ok()) << length;
  // Lengths are what a decoder trusts too easily.
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{2}, uint64_t{254}, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{7}}) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + 24, &length, 8);
    EXPECT_FALSE(decoded(bytes).ok()) << length;
  }
}

TEST(Frame, WireBytesCountsEveryFrameOfAMessage) {
  EXPECT_EQ(WireBytes(0, 100), 80u);
  EXPECT_EQ(WireBytes(100, 100), 180u);
  EXPECT_EQ(WireBytes(101, 100), 261u);
}

}  // namespace
}  // namespace fusionllm::transport
