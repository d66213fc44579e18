#include "lib/collective/chain_letters.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/philox.h"
#include "lib/base/printable_text.h"

namespace fusionllm::collective {
namespace {

// Texts of a sentence; a status may quote two calls and the names of a group.
constexpr size_t kMostTensorsTold = 6;
constexpr size_t kMostCallBytes = 512;
constexpr size_t kMostWhyBytes = 2048;

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

struct FixedFarewell {
  int64_t calls;
  int64_t code;
};

}  // namespace

Greeting Describe(absl::string_view call, std::span<const tensor::TensorType> types, std::span<const int> chain, size_t letter_bytes) {
  std::vector<std::string> texts;
  for (const tensor::TensorType& type : types) texts.push_back(absl::StrCat(tensor::Name(type.dtype), "[", type.elements(), "]"));
  const std::string all = absl::StrJoin(texts, ", ");
  Greeting greeting = {.digest = base::StableHash(absl::StrCat(call, " ", all, "; ", absl::StrJoin(chain, " "), "; ", letter_bytes))};
  greeting.call = absl::StrCat(call, " ", all);
  if (texts.size() > kMostTensorsTold) {
    texts.resize(kMostTensorsTold);
    greeting.call = absl::StrCat(call, " ", absl::StrJoin(texts, ", "), " and ", types.size() - kMostTensorsTold, " more");
  }
  return greeting;
}

std::vector<std::byte> Encode(const Greeting& greeting) { return WithText(greeting.digest, greeting.call, kMostCallBytes); }

absl::StatusOr<Greeting> ParseGreeting(std::span<const std::byte> bytes) {
  Greeting greeting;
  if (Split(bytes, kMostCallBytes, greeting.digest, greeting.call)) return greeting;
  return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are no greeting"));
}

std::vector<std::byte> Encode(const Farewell& farewell) {
  return WithText(FixedFarewell{.calls = farewell.calls, .code = farewell.why.raw_code()}, farewell.why.message(), kMostWhyBytes);
}

absl::StatusOr<Farewell> ParseFarewell(std::span<const std::byte> bytes) {
  FixedFarewell fixed = {};
  std::string text;
  if (!Split(bytes, kMostWhyBytes, fixed, text) || fixed.code < 0 ||
      fixed.code > static_cast<int64_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::InvalidArgumentError(absl::StrCat(bytes.size(), " bytes are no farewell"));
  }
  return Farewell{.why = absl::Status(static_cast<absl::StatusCode>(fixed.code), text), .calls = fixed.calls};
}

}  // namespace fusionllm::collective
