// Entry point for coverage-guided fuzzing of the decoders (libFuzzer), and the body of the mutation test.
//
// Input: one byte chooses the decoder and the mask, two bytes the expected size, the rest is the message.
// It aborts when a decoder accepts a message of a lossy codec and yields a number that is not finite.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lib/compression/codec.h"

namespace fusionllm::compression {
namespace {

// Every third element, as a forward message might have selected.
Mask EveryThird(size_t elements) {
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < elements; i += 3) indices.push_back(static_cast<uint32_t>(i));
  return Mask::FromIndices(static_cast<int64_t>(elements), indices);
}

void DecodeUntrusted(uint8_t choice, size_t elements, std::span<const std::byte> message) {
  if (choice % 4 == 3) {
    std::vector<int32_t> out(elements);
    DecodeIntegers(message, out).IgnoreError();
    return;
  }
  std::vector<float> out(elements);
  const Mask given = choice % 4 == 2 ? EveryThird(elements) : Mask();
  Mask received;
  const auto direction = choice % 4 == 0 ? Direction::kForward : Direction::kBackward;
  if (!Decode(direction, message, &given, out, &received).ok()) return;
  if (message[1] == std::byte{0}) return;  // the exact layout carries any bits
  for (float x : out) {
    if (!std::isfinite(x)) std::abort();
  }
  if (!received.dense()) {
    // What the decoder took for a mask must serve the gradient.
    std::vector<std::byte> gradient;
    if (!Encode(TopK(3), Direction::kBackward, out, &received, nullptr, &gradient, nullptr).ok()) std::abort();
  }
}

}  // namespace
}  // namespace fusionllm::compression

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const size_t elements = data[1] | size_t{data[2]} << 8;
  // A buffer of the exact size, so that a sanitizer sees a read one byte too far.
  std::vector<std::byte> message(size - 3);
  if (!message.empty()) std::memcpy(message.data(), data + 3, message.size());
  fusionllm::compression::DecodeUntrusted(data[0], elements, message);
  return 0;
}
