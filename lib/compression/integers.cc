// The lossless codec of integer tensors; declared in codec.h.
#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec.h"
#include "lib/compression/header.h"

namespace fusionllm::compression {
namespace {

// Differences to the base modulo 2^32: exact for every pair of int32.
template <typename Narrow>
void Pack(std::span<const int32_t> values, int32_t base, std::byte* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto difference = static_cast<Narrow>(static_cast<uint32_t>(values[i]) - static_cast<uint32_t>(base));
    std::memcpy(out + i * sizeof(Narrow), &difference, sizeof(Narrow));
  }
}

template <typename Narrow>
void Unpack(std::span<const std::byte> payload, int32_t base, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Narrow difference;
    std::memcpy(&difference, payload.data() + i * sizeof(Narrow), sizeof(Narrow));
    out[i] = static_cast<int32_t>(static_cast<uint32_t>(base) + difference);
  }
}

}  // namespace

absl::Status EncodeIntegers(std::span<const int32_t> values, std::vector<std::byte>* out) {
  if (values.size() > static_cast<size_t>(kMaxElements)) {
    return absl::InvalidArgumentError(absl::StrCat("a tensor of ", values.size(), " elements exceeds the limit of ", kMaxElements));
  }
  int32_t least = values.empty() ? 0 : values[0], greatest = least;
  for (int32_t value : values) {
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  const uint32_t range = static_cast<uint32_t>(greatest) - static_cast<uint32_t>(least);
  const uint8_t width = range <= std::numeric_limits<uint8_t>::max() ? 1 : range <= std::numeric_limits<uint16_t>::max() ? 2 : 4;
  out->resize(kHeaderBytes + width * values.size());
  WriteHeader({.layout = Layout::kIntegers, .values = width, .elements = static_cast<uint32_t>(values.size()), .parameter = least},
              out->data());
  std::byte* payload = out->data() + kHeaderBytes;
  if (width == 1) Pack<uint8_t>(values, least, payload);
  if (width == 2) Pack<uint16_t>(values, least, payload);
  if (width == 4) Pack<uint32_t>(values, least, payload);
  return absl::OkStatus();
}

absl::Status DecodeIntegers(std::span<const std::byte> encoded, std::span<int32_t> out) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Header header, ReadHeader(encoded, Direction::kForward, out.size()));
  if (header.layout != Layout::kIntegers) return absl::InvalidArgumentError("compressed tensor: floats where integers were expected");
  const std::span<const std::byte> payload = encoded.subspan(kHeaderBytes);
  if (payload.size() != header.values * out.size()) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", out.size(), " integers of ", header.values,
                                                   " bytes, the message has ", payload.size(), " bytes"));
  }
  if (header.values == 1) Unpack<uint8_t>(payload, header.parameter, out);
  if (header.values == 2) Unpack<uint16_t>(payload, header.parameter, out);
  if (header.values == 4) Unpack<uint32_t>(payload, header.parameter, out);
  return absl::OkStatus();
}

}  // namespace fusionllm::compression
