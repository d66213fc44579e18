#include "lib/job/units.h"

#include <charconv>
#include <cmath>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::job {
namespace {

struct Unit {
  absl::string_view name;
  int64_t factor;
};

// Largest first: printing takes the first that divides.
constexpr Unit kBandwidthUnits[] = {{"Gbit", 1'000'000'000}, {"Mbit", 1'000'000}, {"kbit", 1'000}, {"bit", 1}};
constexpr Unit kSizeUnits[] = {
    {"Ti", int64_t{1} << 40}, {"Gi", int64_t{1} << 30}, {"Mi", int64_t{1} << 20}, {"Ki", int64_t{1} << 10}, {"", 1}};
constexpr Unit kDurationUnits[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}};

constexpr int64_t kMaxDecimal = 1'000'000'000'000'000;
constexpr int64_t kMaxBytes = int64_t{1} << 53;  // beyond it a double is no longer exact

struct Quantity {
  absl::string_view what;    // "bandwidth"
  absl::string_view advice;  // what to write instead
  std::span<const Unit> units;
  int64_t max;
};

constexpr Quantity kBandwidth = {"bandwidth", "write a number and bit, kbit, Mbit or Gbit (per second), as in 10Mbit", kBandwidthUnits,
                                 kMaxDecimal};
constexpr Quantity kSize = {"size", "write a number and Ki, Mi, Gi or Ti (bytes), as in 2Gi", kSizeUnits, kMaxBytes};
constexpr Quantity kDuration = {"duration", "write a number and us, ms or s, as in 40ms", kDurationUnits, kMaxDecimal};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

absl::Status NoSuch(const Quantity& quantity, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text.substr(0, 40), "\" is no ", quantity.what, ": ", quantity.advice));
}

absl::StatusOr<int64_t> Parse(const Quantity& quantity, absl::string_view text) {
  if (!text.empty() && text[0] == '-') {
    return absl::InvalidArgumentError(absl::StrCat("a ", quantity.what, " must not be negative, got ", text.substr(0, 40)));
  }
  size_t end = 0;
  while (end < text.size() && (IsDigit(text[end]) || text[end] == '.')) ++end;
  if (end == 0 || end > 40 || !IsDigit(text[0]) || !IsDigit(text[end - 1])) return NoSuch(quantity, text);
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + end, number, std::chars_format::fixed);
  if (error != std::errc() || stop != text.data() + end) return NoSuch(quantity, text);
  for (const Unit& unit : quantity.units) {
    if (text.substr(end) != unit.name) continue;
    if (unit.name.empty() && number != std::floor(number)) return NoSuch(quantity, text);
    const double value = std::round(number * static_cast<double>(unit.factor));
    if (value > static_cast<double>(quantity.max)) {
      return absl::InvalidArgumentError(absl::StrCat("a ", quantity.what, " of ", text, " is beyond the limit"));
    }
    return static_cast<int64_t>(value);
  }
  return NoSuch(quantity, text);
}

std::string Print(std::span<const Unit> units, int64_t value) {
  for (const Unit& unit : units) {
    if (value % unit.factor == 0 && (value != 0 || &unit == &units.back())) return absl::StrCat(value / unit.factor, unit.name);
  }
  const Unit& smallest = units.back();  // only durations come here: nanoseconds as a fraction of a microsecond
  return absl::StrFormat("%d.%03d%s", value / smallest.factor, value % smallest.factor, smallest.name);
}

}  // namespace

absl::StatusOr<Bandwidth> ParseBandwidth(absl::string_view text) {
  const absl::StatusOr<int64_t> value = Parse(kBandwidth, text);
  if (!value.ok()) return value.status();
  if (*value == 0) return absl::InvalidArgumentError(absl::StrCat("a bandwidth must be at least 1bit, got ", text));
  return Bandwidth{*value};
}

absl::StatusOr<ByteSize> ParseByteSize(absl::string_view text) {
  const absl::StatusOr<int64_t> value = Parse(kSize, text);
  if (!value.ok()) return value.status();
  return ByteSize{*value};
}

absl::StatusOr<Duration> ParseDuration(absl::string_view text) {
  if (text == "0") return Duration{};
  const absl::StatusOr<int64_t> value = Parse(kDuration, text);
  if (!value.ok()) return value.status();
  return Duration{*value};
}

std::string ToString(Bandwidth value) { return Print(kBandwidthUnits, value.bits_per_s); }
std::string ToString(ByteSize value) { return Print(kSizeUnits, value.bytes); }
std::string ToString(Duration value) { return Print(kDurationUnits, value.ns); }

}  // namespace fusionllm::job
