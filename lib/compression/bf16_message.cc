// The lossless codec of bf16 tensors; EncodeBf16 and DecodeBf16 are declared in codec.h.
#include "lib/compression/bf16_message.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
#include "lib/compression/header.h"

namespace fusionllm::compression {

absl::Status CheckBf16(size_t elements) {
  if (elements <= static_cast<size_t>(kMaxElements)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a tensor of ", elements, " elements exceeds the limit of ", kMaxElements));
}

absl::Status BeginBf16(Direction direction, size_t elements, std::vector<std::byte>* out) {
  FUSIONLLM_RETURN_IF_ERROR(CheckBf16(elements));
  out->resize(kHeaderBytes + elements * sizeof(uint16_t));
  WriteHeader({.layout = Layout::kNativeBf16, .direction = direction, .elements = static_cast<uint32_t>(elements)}, out->data());
  return absl::OkStatus();
}

absl::StatusOr<std::span<const std::byte>> ReadBf16(Direction direction, std::span<const std::byte> encoded, size_t elements) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Header header, ReadHeader(encoded, direction, elements));
  if (header.layout != Layout::kNativeBf16)
    return absl::InvalidArgumentError("compressed tensor: other values where bfloats were expected");
  const std::span<const std::byte> payload = encoded.subspan(kHeaderBytes);
  if (payload.size() == elements * sizeof(uint16_t)) return payload;
  return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", elements, " bfloats take ", elements * sizeof(uint16_t),
                                                 " bytes, the message has ", payload.size()));
}

absl::Status EncodeBf16(Direction direction, std::span<const uint16_t> values, std::vector<std::byte>* out) {
  FUSIONLLM_RETURN_IF_ERROR(BeginBf16(direction, values.size(), out));
  if (!values.empty()) std::memcpy(out->data() + kHeaderBytes, values.data(), values.size_bytes());
  return absl::OkStatus();
}

absl::Status DecodeBf16(Direction direction, std::span<const std::byte> encoded, std::span<uint16_t> out) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::span<const std::byte> payload, ReadBf16(direction, encoded, out.size()));
  if (!out.empty()) std::memcpy(out.data(), payload.data(), payload.size());
  return absl::OkStatus();
}

}  // namespace fusionllm::compression
