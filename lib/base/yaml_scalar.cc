#include "lib/base/yaml_scalar.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace fusionllm::base {
namespace {

constexpr absl::string_view kTrue[] = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"};
constexpr absl::string_view kFalse[] = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"};
constexpr absl::string_view kNotFinite[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf", "+.INF",
                                            "-.inf", "-.Inf", "-.INF", ".nan",  ".NaN",  ".NAN"};

template <size_t N>
bool IsOneOf(absl::string_view text, const absl::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

struct Radix {
  int base;
  size_t prefix;  // bytes in front of the digits
};

Radix RadixOf(absl::string_view digits) {
  if (digits.size() < 2 || digits[0] != '0') return {10, 0};
  switch (absl::ascii_tolower(static_cast<unsigned char>(digits[1]))) {
    case 'x':
      return {16, 2};
    case 'o':
      return {8, 2};
    case 'b':
      return {2, 2};
    default:
      return {8, 1};
  }
}

int DigitOf(char c) {
  if (absl::ascii_isdigit(static_cast<unsigned char>(c))) return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 16;
}

// Nullopt: it is none, or does not fit into 64 bits, those above int64 without a sign.
std::optional<YamlScalar> Integer(absl::string_view text) {
  const bool sign = text[0] == '-' || text[0] == '+', negative = text[0] == '-';
  absl::string_view digits = text.substr(sign ? 1 : 0);
  const Radix radix = RadixOf(digits);
  digits.remove_prefix(radix.prefix);
  if (digits.empty()) return std::nullopt;
  uint64_t value = 0;
  for (const char c : digits) {
    const int digit = DigitOf(c);
    if (digit >= radix.base) return std::nullopt;
    const auto base = static_cast<uint64_t>(radix.base), more = static_cast<uint64_t>(digit);
    if (value > (std::numeric_limits<uint64_t>::max() - more) / base) return std::nullopt;
    value = value * base + more;
  }
  constexpr auto kMaxSigned = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (value > (sign ? kMaxSigned + (negative ? 1 : 0) : std::numeric_limits<uint64_t>::max())) return std::nullopt;
  const auto magnitude = static_cast<double>(value);
  return YamlScalar{YamlScalar::Type::kInteger, absl::StrCat(negative && value > 0 ? "-" : "", value), negative ? -magnitude : magnitude};
}

}  // namespace

bool IsDecimalNumber(absl::string_view text) {
  size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) ++at;
    return at > begin;
  };
  bool mantissa = digits();
  if (at < text.size() && text[at] == '.') {
    ++at;
    mantissa = digits() || mantissa;
  }
  if (mantissa && at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    mantissa = digits();
  }
  return mantissa && at == text.size();
}

YamlScalar ResolveYamlScalar(absl::string_view plain) {
  YamlScalar scalar{YamlScalar::Type::kText, std::string(plain), 0};
  if (plain.empty()) return scalar;
  if (IsOneOf(plain, kTrue)) return {YamlScalar::Type::kBool, "true", 0};
  if (IsOneOf(plain, kFalse)) return {YamlScalar::Type::kBool, "false", 0};
  if (IsOneOf(plain, kNotFinite)) return {YamlScalar::Type::kNotFinite, std::string(plain), 0};
  const bool point = plain[0] == '.';
  if (!point && plain[0] != '-' && plain[0] != '+' && !absl::ascii_isdigit(static_cast<unsigned char>(plain[0]))) return scalar;
  // Behind a point at the front underscores are none of a number.
  const std::string digits = point ? std::string(plain) : absl::StrReplaceAll(plain, {{"_", ""}});
  if (const auto integer = point ? std::nullopt : Integer(digits)) return *integer;
  double value = 0;
  if (!IsDecimalNumber(digits) || !absl::SimpleAtod(digits, &value) || !std::isfinite(value)) return scalar;
  return {YamlScalar::Type::kFloat, std::string(plain), value};
}

std::string FixYamlEscapes(absl::string_view scalar) {
  std::string mended;
  for (size_t at = 0; at < scalar.size();) {
    const auto lead = static_cast<unsigned char>(scalar[at]);
    if (lead == 0x85 || lead == 0xA0) mended += '\xC2';
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
    absl::StrAppend(&mended, scalar.substr(at, length));
    at += length;
  }
  return mended;
}

}  // namespace fusionllm::base
