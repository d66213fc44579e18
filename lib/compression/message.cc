#include "lib/compression/message.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/mask.h"

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

absl::StatusOr<Message> ReadMasked(Message message, std::span<const std::byte> payload, MaskSize mask) {
  const Header& header = message.header;
  message.codec = FindValueCodec(static_cast<ValueKind>(header.values));
  message.count = header.kept;
  message.values = payload;
  if (static_cast<int64_t>(header.kept) != mask.kept) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: gradient of ", header.kept, " values, the forward message kept ", mask.kept));
  }
  if (payload.size() != message.codec->ValueBytes(header.kept)) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: a payload of ", payload.size(), " bytes is not ", header.kept, " values"));
  }
  return message;
}

absl::StatusOr<Message> ReadTopK(Message message, std::span<const std::byte> payload) {
  const Header& header = message.header;
  message.codec = FindValueCodec(static_cast<ValueKind>(header.values));
  message.count = header.kept;
  const auto mask_bytes = static_cast<size_t>(Mask::SerializedBytes(header.elements, header.kept));
  const size_t value_bytes = message.codec->ValueBytes(header.kept);
  if (payload.size() != mask_bytes + value_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", header.kept, " of ", header.elements, " elements take ",
                                                   mask_bytes + value_bytes, " bytes, the message has ", payload.size()));
  }
  message.mask = payload.first(mask_bytes);
  message.values = payload.subspan(mask_bytes);
  return message;
}

}  // namespace

absl::Status CheckEncode(const CodecSpec& spec, Direction direction, size_t elements, MaskSize mask) {
  FUSIONLLM_RETURN_IF_ERROR(Validate(spec));
  FUSIONLLM_RETURN_IF_ERROR(CheckElements(elements));
  return CheckMask(direction == Direction::kBackward && IsSparse(spec.kind), mask, elements);
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
  const DenseCodec* const dense = FindDenseCodec(header.layout);
  const Message message{.header = header, .codec = dense, .count = elements, .mask = {}, .values = payload};
  if (masked) return ReadMasked(message, payload, mask);
  if (header.layout == Layout::kTopK) return ReadTopK(message, payload);
  if (payload.size() != dense->ValueBytes(elements)) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", elements, " values take ", dense->ValueBytes(elements),
                                                   " bytes, the message has ", payload.size()));
  }
  return message;
}

}  // namespace fusionllm::compression
