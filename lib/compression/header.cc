#include "lib/compression/header.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/compression/registry.h"

namespace fusionllm::compression {
namespace {

absl::Status Malformed(const absl::AlphaNum& what, const absl::AlphaNum& value = "") {
  return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", what, value));
}

bool IsKnown(Layout layout) {
  const bool of_several_codecs = layout == Layout::kTopK || layout == Layout::kMasked;
  return of_several_codecs || layout == Layout::kIntegers || layout == Layout::kNativeBf16 || FindDenseCodec(layout) != nullptr;
}

absl::Status CheckUnusedFields(const Header& header) {
  const bool sparse = header.layout == Layout::kTopK || header.layout == Layout::kMasked;
  if (!sparse && header.kept != 0) return Malformed("byte 8: a dense layout keeps no selection, but says ", header.kept);
  if (sparse && header.kept > header.elements) return Malformed("byte 8: keeps more elements than there are: ", header.kept);
  if (sparse && FindValueCodec(static_cast<ValueKind>(header.values)) == nullptr) {
    return Malformed("byte 3: unknown kind of values ", header.values);
  }
  if (header.layout == Layout::kIntegers && header.values != 1 && header.values != 2 && header.values != 4) {
    return Malformed("byte 3: integers of 1, 2 or 4 bytes, not ", header.values);
  }
  if (!sparse && header.layout != Layout::kIntegers && header.values != 0) return Malformed("byte 3: must be 0, not ", header.values);
  const DenseCodec* const dense = FindDenseCodec(header.layout);
  const bool plain = header.layout == Layout::kNativeBf16 || (dense != nullptr && !dense->has_parameter());
  if (plain && header.parameter != 0) return Malformed("byte 12: must be 0, not ", header.parameter);
  return absl::OkStatus();
}

}  // namespace

void WriteHeader(const Header& header, std::byte* out) {
  const uint8_t bytes[4] = {kFormatVersion, static_cast<uint8_t>(header.layout), static_cast<uint8_t>(header.direction), header.values};
  std::memcpy(out, bytes, 4);
  std::memcpy(out + 4, &header.elements, 4);
  std::memcpy(out + 8, &header.kept, 4);
  std::memcpy(out + 12, &header.parameter, 4);
}

absl::StatusOr<Header> ReadHeader(std::span<const std::byte> message, Direction direction, size_t expected_elements) {
  if (message.size() < static_cast<size_t>(kHeaderBytes)) {
    return Malformed("a message has at least 16 bytes, this one ", message.size());
  }
  uint8_t bytes[4];
  std::memcpy(bytes, message.data(), 4);
  if (bytes[0] != kFormatVersion) return Malformed("byte 0: format version 1 is known, not ", bytes[0]);
  if (!IsKnown(static_cast<Layout>(bytes[1]))) return Malformed("byte 1: unknown layout ", bytes[1]);
  if (bytes[2] > 1) return Malformed("byte 2: unknown direction ", bytes[2]);
  Header header;
  header.layout = static_cast<Layout>(bytes[1]);
  header.direction = static_cast<Direction>(bytes[2]);
  header.values = bytes[3];
  std::memcpy(&header.elements, message.data() + 4, 4);
  std::memcpy(&header.kept, message.data() + 8, 4);
  std::memcpy(&header.parameter, message.data() + 12, 4);
  if (header.direction != direction) {
    return Malformed(direction == Direction::kForward ? "expected a forward message, got a backward one"
                                                      : "expected a backward message, got a forward one");
  }
  if (header.elements != expected_elements) {
    return Malformed(absl::StrCat("holds ", header.elements, " elements, expected ", expected_elements));
  }
  if (absl::Status status = CheckUnusedFields(header); !status.ok()) return status;
  return header;
}

}  // namespace fusionllm::compression
