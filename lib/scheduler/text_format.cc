#include "lib/scheduler/text_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace fusionllm::scheduler {

std::string SizeText(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  if (unit == 0 || bytes >= 100) return absl::StrFormat("%.0f %s", bytes, kUnits[unit]);
  return absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

std::string TrafficText(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  int unit = 0;
  while (bytes >= 1000 && unit < 5) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0 || bytes >= 99.95) return absl::StrFormat("%.0f %s", bytes, kUnits[unit]);
  return absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

std::string DurationText(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.3g us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  return absl::StrFormat("%.3g s", seconds);
}

std::string MemoryRemedy(absl::string_view also) {
  return absl::StrCat(
      "; give executors more memory (memory of a topology's devices; in Kubernetes resources.limits.memory in spec.executors.template)",
      also);
}

}  // namespace fusionllm::scheduler
