#include "lib/compression/layout.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/mask.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression {
namespace {

absl::Status CheckElements(size_t n) {
  if (n <= static_cast<size_t>(kMaxElements)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a tensor of ", n, " elements exceeds the limit of ", kMaxElements));
}

absl::Status CheckMask(bool needed, MaskSize mask, size_t elements) {
  const absl::string_view what = needed ? "a top-k gradient" : "this message";
  const bool given = mask.elements > 0;
  if (needed && !given && elements > 0) return absl::InvalidArgumentError(absl::StrCat(what, " needs the mask of its forward message"));
  if (!needed && given) return absl::InvalidArgumentError(absl::StrCat(what, " takes no mask, but one was given"));
  if (needed && given && mask.elements != static_cast<int64_t>(elements)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": the mask is for ", mask.elements, " elements, the tensor has ", elements));
  }
  return absl::OkStatus();
}

// The greatest of the 16-bit words, each and-ed with `bits`.
uint16_t GreatestWord(std::span<const std::byte> words, uint16_t bits) {
  uint16_t greatest = 0;
  for (size_t i = 0; i < words.size() / 2; ++i) {
    uint16_t word;
    std::memcpy(&word, words.data() + 2 * i, 2);
    greatest = std::max<uint16_t>(greatest, word & bits);
  }
  return greatest;
}

absl::StatusOr<Message> ReadMasked(Message message, std::span<const std::byte> payload, MaskSize mask) {
  const Header& header = message.header;
  message.layout = ValueLayout(static_cast<ValueKind>(header.values));
  message.count = header.kept;
  message.values = payload;
  if (static_cast<int64_t>(header.kept) != mask.kept) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: gradient of ", header.kept, " values, the forward message kept ", mask.kept));
  }
  if (payload.size() != PayloadBytes(message.layout, header.kept)) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: a payload of ", payload.size(), " bytes is not ", header.kept, " values"));
  }
  return message;
}

absl::StatusOr<Message> ReadTopK(Message message, std::span<const std::byte> payload) {
  const Header& header = message.header;
  message.layout = ValueLayout(static_cast<ValueKind>(header.values));
  message.count = header.kept;
  const auto mask_bytes = static_cast<size_t>(Mask::SerializedBytes(header.elements, header.kept));
  const size_t value_bytes = PayloadBytes(message.layout, header.kept);
  if (payload.size() != mask_bytes + value_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", header.kept, " of ", header.elements, " elements take ",
                                                   mask_bytes + value_bytes, " bytes, the message has ", payload.size()));
  }
  message.mask = payload.first(mask_bytes);
  message.values = payload.subspan(mask_bytes);
  return message;
}

}  // namespace

Layout DenseLayout(CodecKind kind) {
  switch (kind) {
    case CodecKind::kFp16:
      return Layout::kFp16;
    case CodecKind::kBf16:
      return Layout::kBf16;
    case CodecKind::kInt8:
      return Layout::kInt8;
    case CodecKind::kInt4:
      return Layout::kInt4;
    case CodecKind::kExact:
    case CodecKind::kTopK:
      break;
  }
  return Layout::kExact;
}

Layout ValueLayout(ValueKind values) {
  switch (values) {
    case ValueKind::kFp16:
      return Layout::kFp16;
    case ValueKind::kInt8:
      return Layout::kInt8;
    case ValueKind::kInt4:
      break;
  }
  return Layout::kInt4;
}

int32_t BlockSize(Layout layout) {
  if (layout == Layout::kInt8) return kInt8BlockSize;
  return layout == Layout::kInt4 ? kInt4BlockSize : 0;
}

size_t ScaleBytes(Layout layout, size_t n) {
  const auto block = static_cast<size_t>(BlockSize(layout));
  return 2 * ((n + block - 1) / block);
}

size_t PayloadBytes(Layout layout, size_t n) {
  switch (layout) {
    case Layout::kFp16:
    case Layout::kBf16:
      return 2 * n;
    case Layout::kInt8:
      return ScaleBytes(layout, n) + n;
    case Layout::kInt4:
      return ScaleBytes(layout, n) * (2 + kInt4BlockSize / 2) / 2;
    default:
      return 4 * n;
  }
}

int32_t HalfExponent(uint32_t greatest_magnitude) {
  const int exponent = static_cast<int>(greatest_magnitude >> 23) - 127 - 14;
  return std::clamp(exponent, kMinHalfExponent, kMaxHalfExponent);
}

int32_t ParameterOf(Layout layout, uint32_t greatest_magnitude) {
  return layout == Layout::kFp16 ? HalfExponent(greatest_magnitude) : BlockSize(layout);
}

absl::Status CheckEncode(const CodecSpec& spec, Direction direction, size_t elements, MaskSize mask) {
  FUSIONLLM_RETURN_IF_ERROR(Validate(spec));
  FUSIONLLM_RETURN_IF_ERROR(CheckElements(elements));
  return CheckMask(direction == Direction::kBackward && spec.kind == CodecKind::kTopK, mask, elements);
}

absl::StatusOr<Message> ReadMessage(Direction direction, std::span<const std::byte> encoded, size_t elements, MaskSize mask) {
  FUSIONLLM_RETURN_IF_ERROR(CheckElements(elements));
  FUSIONLLM_ASSIGN_OR_RETURN(const Header header, ReadHeader(encoded, direction, elements));
  if (header.layout == Layout::kIntegers) return absl::InvalidArgumentError("compressed tensor: integers where floats were expected");
  if (header.layout == Layout::kNativeBf16) return absl::InvalidArgumentError("compressed tensor: bfloats where floats were expected");
  const bool masked = header.layout == Layout::kMasked;
  if (masked && direction == Direction::kForward)
    return absl::InvalidArgumentError("compressed tensor: a forward message cannot be masked");
  if (header.layout == Layout::kTopK && direction == Direction::kBackward) {
    return absl::InvalidArgumentError("compressed tensor: a gradient with a selection of its own would ruin training");
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckMask(masked, mask, elements));
  const std::span<const std::byte> payload = encoded.subspan(kHeaderBytes);
  const Message message{.header = header, .layout = header.layout, .count = elements, .mask = {}, .values = payload};
  if (masked) return ReadMasked(message, payload, mask);
  if (header.layout == Layout::kTopK) return ReadTopK(message, payload);
  if (payload.size() != PayloadBytes(header.layout, elements)) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", elements, " values take ", PayloadBytes(header.layout, elements),
                                                   " bytes, the message has ", payload.size()));
  }
  return message;
}

absl::Status CheckParameter(Layout layout, int32_t parameter) {
  if (layout == Layout::kFp16 && (parameter < kMinHalfExponent || parameter > kMaxHalfExponent)) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: byte 12: exponent ", parameter, " is out of range"));
  }
  if (const int32_t block = BlockSize(layout); block != 0 && parameter != block) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: byte 12: blocks of ", block, " are known, not of ", parameter));
  }
  return absl::OkStatus();
}

absl::Status ValuesNotFiniteError() {
  return absl::InvalidArgumentError("compressed tensor: a scale or value is infinite, NaN or out of range");
}

bool ValuesAreFinite(const Message& message) {
  switch (message.layout) {
    case Layout::kFp16:
      return GreatestWord(message.values, 0x7c00) < 0x7c00;
    case Layout::kBf16:
      return GreatestWord(message.values, 0x7fff) <= kMaxScaleBits;
    case Layout::kInt8:
    case Layout::kInt4:  // a scale's sign bit counts: no valid one has it set
      return GreatestWord(message.values.first(ScaleBytes(message.layout, message.count)), 0xffff) <= kMaxScaleBits;
    default:
      return true;
  }
}

}  // namespace fusionllm::compression
