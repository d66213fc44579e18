#include "lib/report/number_format.h"

#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::report {
namespace {

std::string Scaled(double bytes, double base, const char* const (&units)[5]) {
  if (!std::isfinite(bytes)) return "-";
  size_t unit = 0;
  while (std::abs(bytes) >= base && unit + 1 < std::size(units)) {
    bytes /= base;
    ++unit;
  }
  if (unit == 0) return absl::StrFormat("%.0f %s", bytes, units[0]);
  const int digits = std::abs(bytes) < 9.95 ? 2 : std::abs(bytes) < 99.5 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, bytes, units[unit]);
}

}  // namespace

std::string Count(double value) {
  if (!std::isfinite(value) || std::abs(value) > 1e15) return "-";
  if (std::abs(value) < 1) return absl::StrFormat("%.2g", value);
  if (std::abs(value) < 99.95) return absl::StrFormat("%.1f", value);
  return WholeNumber(static_cast<int64_t>(std::nearbyint(value)));
}

std::string WholeNumber(int64_t number) {
  const std::string written = absl::StrCat(number);
  const size_t sign = number < 0 ? 1 : 0;
  std::string text = written.substr(0, sign + 1);
  for (size_t i = sign + 1; i < written.size(); ++i) {
    if ((written.size() - i) % 3 == 0) text += ',';
    text += written[i];
  }
  return text;
}

std::string TimeSpan(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-";
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole >= 86400) return absl::StrFormat("%dd%dh", whole / 86400, whole % 86400 / 3600);
  if (whole >= 3600) return absl::StrFormat("%dh%02dm", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrCat(whole, "s");
}

std::string StepSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  return seconds < 0.0995 ? absl::StrFormat("%.3gms", seconds * 1e3) : absl::StrFormat("%.2fs", seconds);
}

std::string ElapsedTime(double seconds) {
  constexpr double kShort = 10;  // where whole seconds would say little
  return seconds >= 0 && seconds < kShort ? StepSeconds(seconds) : TimeSpan(seconds);
}

std::string TrafficBytes(double bytes) { return Scaled(bytes, 1000, {"B", "kB", "MB", "GB", "TB"}); }

std::string MemoryBytes(double bytes) { return Scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"}); }

std::string Percent(double share) { return std::isfinite(share) ? absl::StrFormat("%.1f%%", share * 100) : "-"; }

std::string Ratio(double ratio) { return std::isfinite(ratio) ? absl::StrFormat("%.1fx", ratio) : "-"; }

}  // namespace fusionllm::report
