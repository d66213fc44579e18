// The lossless codec of bf16 tensors; declared in codec.h.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
#include "lib/compression/header.h"

namespace fusionllm::compression {

absl::Status EncodeBfloats(Direction direction, std::span<const uint16_t> values, std::vector<std::byte>* out) {
  if (values.size() > static_cast<size_t>(kMaxElements)) {
    return absl::InvalidArgumentError(absl::StrCat("a tensor of ", values.size(), " elements exceeds the limit of ", kMaxElements));
  }
  out->resize(kHeaderBytes + values.size_bytes());
  WriteHeader({.layout = Layout::kBfloats, .direction = direction, .elements = static_cast<uint32_t>(values.size())}, out->data());
  if (!values.empty()) std::memcpy(out->data() + kHeaderBytes, values.data(), values.size_bytes());
  return absl::OkStatus();
}

absl::Status DecodeBfloats(Direction direction, std::span<const std::byte> encoded, std::span<uint16_t> out) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Header header, ReadHeader(encoded, direction, out.size()));
  if (header.layout != Layout::kBfloats) return absl::InvalidArgumentError("compressed tensor: other values where bfloats were expected");
  const std::span<const std::byte> payload = encoded.subspan(kHeaderBytes);
  if (payload.size() != out.size_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: ", out.size(), " bfloats take ", out.size_bytes(), " bytes, the message has ", payload.size()));
  }
  if (!out.empty()) std::memcpy(out.data(), payload.data(), payload.size());
  return absl::OkStatus();
}

}  // namespace fusionllm::compression
