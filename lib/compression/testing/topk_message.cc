#include "lib/compression/testing/topk_message.h"

#include <algorithm>

#include "lib/compression/codec.h"
#include "lib/compression/header.h"
#include "lib/compression/registry.h"

namespace fusionllm::compression::testing {

std::vector<std::byte> TopKMessage(ValueKind values, Direction direction, const Mask& mask, std::span<const float> kept) {
  // Values have the form that they have in a dense message.
  std::vector<std::byte> dense;
  Encode({.kind = FindValueCodec(values)->traits.kind}, Direction::kForward, kept, nullptr, nullptr, &dense, nullptr).IgnoreError();
  Header header = ReadHeader(dense, Direction::kForward, static_cast<size_t>(mask.kept())).value();
  const bool forward = direction == Direction::kForward;
  header.layout = forward ? Layout::kTopK : Layout::kMasked;
  header.direction = direction;
  header.values = static_cast<uint8_t>(values);
  header.elements = static_cast<uint32_t>(mask.elements());
  header.kept = static_cast<uint32_t>(mask.kept());
  const size_t values_at = kHeaderBytes + static_cast<size_t>(forward ? Mask::SerializedBytes(mask.elements(), mask.kept()) : 0);
  std::vector<std::byte> message(values_at + dense.size() - kHeaderBytes);
  WriteHeader(header, message.data());
  if (forward) mask.Serialize(message.data() + kHeaderBytes);
  std::copy(dense.begin() + kHeaderBytes, dense.end(), message.begin() + static_cast<ptrdiff_t>(values_at));
  return message;
}

}  // namespace fusionllm::compression::testing
