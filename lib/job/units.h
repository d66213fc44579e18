// Quantities with units as they are written in job and topology files: "10Mbit", "2Gi", "40ms".
//
// Pure functions and plain values. Parsing is strict and case-sensitive: a wrong unit is an error, never a guess. Printing picks the
// largest unit in which the value is exact, so parse(print(x)) == x for every value within the limits.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::job {

// Bits per second, decimal: kbit is 1'000 bit. 1 to 10^15.
struct Bandwidth {
  int64_t bits_per_s = 0;
  double bytes_per_s() const { return static_cast<double>(bits_per_s) / 8; }
  bool operator==(const Bandwidth&) const = default;
};

// Bytes; Ki is 1'024. 0 to 2^53.
struct ByteSize {
  int64_t bytes = 0;
  bool operator==(const ByteSize&) const = default;
};

// Nanoseconds. 0 to 10^15 (about eleven days).
struct Duration {
  int64_t ns = 0;
  double seconds() const { return static_cast<double>(ns) * 1e-9; }
  bool operator==(const Duration&) const = default;
};

// Number and bit, kbit, Mbit or Gbit, all per second. InvalidArgument for anything else, for zero and beyond the limit.
absl::StatusOr<Bandwidth> ParseBandwidth(absl::string_view text);
// Number and Ki, Mi, Gi or Ti; without a unit: a whole number of bytes.
absl::StatusOr<ByteSize> ParseByteSize(absl::string_view text);
// Number and us, ms or s; a bare 0 needs no unit.
absl::StatusOr<Duration> ParseDuration(absl::string_view text);

std::string ToString(Bandwidth value);
std::string ToString(ByteSize value);
std::string ToString(Duration value);

}  // namespace fusionllm::job
