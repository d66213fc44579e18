#include "lib/collective/chain_messages.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/philox.h"
#include "lib/base/printable_text.h"

namespace fusionllm::collective {
namespace {

// Texts of a sentence; a status may quote two calls and the names of a group.
constexpr size_t kMaxTensorsListed = 6;
constexpr size_t kMaxCallBytes = 512;
constexpr size_t kMaxReasonBytes = 2048;

// A fixed part and a text, in the order of bytes that x86 and ARM have. Both ends are builds of this project.
template <typename Fixed>
std::vector<std::byte> WithText(const Fixed& fixed, absl::string_view text, size_t most) {
  text = text.substr(0, most);
  std::vector<std::byte> bytes(sizeof(fixed) + text.size());
  std::memcpy(bytes.data(), &fixed, sizeof(fixed));
  if (!text.empty()) std::memcpy(bytes.data() + sizeof(fixed), text.data(), text.size());
  return bytes;
}

template <typename Fixed>
bool Split(std::span<const std::byte> bytes, size_t most, Fixed& fixed, std::string& text) {
  if (bytes.size() < sizeof(fixed) || bytes.size() > sizeof(fixed) + most) return false;
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  text = base::PrintableText({reinterpret_cast<const char*>(bytes.data()) + sizeof(fixed), bytes.size() - sizeof(fixed)});
  return true;
}

struct FixedCloseMessage {
  int64_t calls;
  int64_t code;
};

}  // namespace

CallHeader Describe(absl::string_view call, std::span<const tensor::TensorType> types, std::span<const int> chain, size_t chunk_bytes) {
  std::vector<std::string> texts;
  for (const tensor::TensorType& type : types) texts.push_back(absl::StrCat(tensor::Name(type.dtype), "[", type.elements(), "]"));
  const std::string all = absl::StrJoin(texts, ", ");
  CallHeader call_header = {.digest = base::StableHash(absl::StrCat(call, " ", all, "; ", absl::StrJoin(chain, " "), "; ", chunk_bytes))};
  call_header.call = absl::StrCat(call, " ", all);
  if (texts.size() > kMaxTensorsListed) {
    texts.resize(kMaxTensorsListed);
    call_header.call = absl::StrCat(call, " ", absl::StrJoin(texts, ", "), " and ", types.size() - kMaxTensorsListed, " more");
  }
  return call_header;
}

std::vector<std::byte> Encode(const CallHeader& call_header) { return WithText(call_header.digest, call_header.call, kMaxCallBytes); }

absl::StatusOr<CallHeader> ParseCallHeader(std::span<const std::byte> bytes) {
  CallHeader call_header;
  if (Split(bytes, kMaxCallBytes, call_header.digest, call_header.call)) return call_header;
  return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are no call header"));
}

std::vector<std::byte> Encode(const CloseMessage& close_message) {
  return WithText(FixedCloseMessage{.calls = close_message.calls, .code = close_message.why.raw_code()}, close_message.why.message(),
                  kMaxReasonBytes);
}

absl::StatusOr<CloseMessage> ParseCloseMessage(std::span<const std::byte> bytes) {
  FixedCloseMessage fixed = {};
  std::string text;
  if (!Split(bytes, kMaxReasonBytes, fixed, text) || fixed.code < 0 ||
      fixed.code > static_cast<int64_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are no close message"));
  }
  return CloseMessage{.why = absl::Status(static_cast<absl::StatusCode>(fixed.code), text), .calls = fixed.calls};
}

}  // namespace fusionllm::collective
