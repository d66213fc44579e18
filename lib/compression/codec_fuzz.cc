// Messages of every codec as a peer may have sent them. One byte of the input chooses the decoder and the mask, or the length of rows, two
// bytes are the expected size, the rest is the message. What a decoder of a lossy codec accepts is finite. mutation_test.cc damages many
// more messages than the seeds here, and watches what is allocated.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lib/base/testing/fuzz.h"
#include "lib/compression/codec.h"
#include "lib/compression/rows.h"
#include "lib/compression/testing/every_codec.h"
#include "lib/compression/testing/topk_message.h"

namespace fusionllm::compression {
namespace {

// Every third element, as a forward message might have selected.
Mask EveryThird(size_t elements) {
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < elements; i += 3) indices.push_back(static_cast<uint32_t>(i));
  return Mask::FromIndices(static_cast<int64_t>(elements), indices);
}

// 15, 31, 47 .. choose rows of 1, 2, 3 .. elements.
constexpr uint8_t kRowsChoice = 15;

bool DecodeUntrustedRows(size_t columns, size_t elements, std::span<const std::byte> message) {
  std::vector<float> out(elements);
  if (!DecodeRows(columns, message, out).ok()) return false;
  if (message[1] == std::byte{0}) return true;  // the exact layout carries any bits
  for (const float x : out) FUZZ_CHECK(std::isfinite(x));
  return true;
}

bool DecodeUntrusted(uint8_t choice, size_t elements, std::span<const std::byte> message) {
  if (choice % 16 == kRowsChoice) return DecodeUntrustedRows(choice / 16 + 1, elements, message);
  if (choice % 8 == 7) {
    std::vector<uint16_t> out(elements);
    return DecodeBf16(Direction::kForward, message, out).ok();
  }
  if (choice % 4 == 3) {
    std::vector<int32_t> out(elements);
    return DecodeIntegers(message, out).ok();
  }
  std::vector<float> out(elements);
  const Mask given = choice % 4 == 2 ? EveryThird(elements) : Mask();
  Mask received;
  const auto direction = choice % 4 == 0 ? Direction::kForward : Direction::kBackward;
  if (!Decode(direction, message, &given, out, &received).ok()) return false;
  if (message[1] == std::byte{0}) return true;  // the exact layout carries any bits
  for (const float x : out) FUZZ_CHECK(std::isfinite(x));
  if (!received.dense()) {
    // What the decoder took for a mask must serve a gradient. Not the values themselves: a damaged scale may make them larger than an
    // encoder accepts.
    const std::vector<float> gradient(elements, 1.0f);
    std::vector<std::byte> answer;
    FUZZ_CHECK(Encode(TopK(3), Direction::kBackward, gradient, &received, nullptr, &answer, nullptr).ok());
  }
  return true;
}

// spec: null where the message is not of floats.
std::string SeedOf(uint8_t choice, const char* spec) {
  constexpr size_t kElements = 300;
  std::vector<std::byte> message;
  absl::Status status;
  if (choice % 16 == kRowsChoice) {
    std::vector<float> values(kElements), residual;
    for (size_t i = 0; i < kElements; i += 40) values[i] = static_cast<float>(i % 17) - 8.5f;
    status = EncodeRows(*ParseCodecSpec(spec), choice / 16 + 1, values, &residual, &message);
  } else if (spec == nullptr && choice == 7) {
    std::vector<uint16_t> values(kElements);
    for (size_t i = 0; i < kElements; ++i) values[i] = static_cast<uint16_t>(i * 211);
    status = EncodeBf16(Direction::kForward, values, &message);
  } else if (spec == nullptr) {
    std::vector<int32_t> values(kElements);
    for (size_t i = 0; i < kElements; ++i) values[i] = static_cast<int32_t>(i * i);
    status = EncodeIntegers(values, &message);
  } else {
    std::vector<float> values(kElements);
    for (size_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i % 17) - 8.0f;
    const Mask mask = choice == 2 ? EveryThird(kElements) : Mask();
    const auto direction = choice == 0 ? Direction::kForward : Direction::kBackward;
    const CodecSpec parsed = *ParseCodecSpec(spec);
    if (choice == 2 && parsed.kind == CodecKind::kInt4) {  // which no sender makes
      message = testing::TopKMessage(ValueKind::kInt4, direction, mask, std::span(values).first(static_cast<size_t>(mask.kept())));
    } else {
      status = Encode(parsed, direction, values, &mask, nullptr, &message, nullptr);
    }
  }
  FUZZ_CHECK(status.ok());
  std::string seed = {static_cast<char>(choice), static_cast<char>(kElements & 0xff), static_cast<char>(kElements >> 8)};
  return seed.append(reinterpret_cast<const char*>(message.data()), message.size());
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const std::string& codec : testing::EveryCodec({"topk@40:int8", "topk@3:fp16", "topk@3:int4"})) {
    seeds.push_back(SeedOf(0, codec.c_str()));
  }
  for (const std::string& seed : {SeedOf(2, "topk@3:int8"), SeedOf(2, "topk@3:fp16"), SeedOf(2, "int4"), SeedOf(3, nullptr),
                                  SeedOf(7, nullptr), SeedOf(15, "fp32"), SeedOf(31, "int8"), SeedOf(79, "int4")}) {
    seeds.push_back(seed);
  }
  return seeds;
}

std::vector<std::string> Words() {
  // The third: an infinity. The last two: the beginnings of a top-k message and of a gradient under its mask, with int4 values.
  return {std::string(4, '\0'), std::string(4, '\xff'), std::string("\0\0\x80\x7f", 4), std::string("\1\5\0\2", 4),
          std::string("\1\6\1\2", 4)};
}

bool Accepts(absl::string_view input) {
  if (input.size() < 3) return false;
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(input[at]); };
  const size_t elements = byte(1) | size_t{byte(2)} << 8;
  // A buffer of the exact size, so that a sanitizer sees a read one byte too far.
  std::vector<std::byte> message(input.size() - 3);
  if (!message.empty()) std::memcpy(message.data(), input.data() + 3, message.size());
  return DecodeUntrusted(byte(0), elements, message);
}

}  // namespace
}  // namespace fusionllm::compression

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {compression::Seeds, compression::Words, compression::Accepts}; }
