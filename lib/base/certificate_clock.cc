#include "lib/base/certificate_clock.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::base {

std::string ClockReading(absl::Time now) {
  return absl::StrCat("the clock of this machine says ", absl::FormatTime("%Y-%m-%d %H:%M:%SZ", now, absl::UTCTimeZone()));
}

std::string WithClock(absl::string_view error, absl::Time now) {
  if (absl::StrContains(error, "alert certificate expired")) {
    return absl::StrCat(error, "; the other end says so of the certificate it was shown, by its own clock; ", ClockReading(now));
  }
  if (absl::StrContains(error, "certificate is not yet valid"))
    return absl::StrCat(error, "; ", ClockReading(now), ": it is behind, or the other one is ahead");
  if (absl::StrContains(error, "certificate has expired")) {
    return absl::StrCat(error, "; ", ClockReading(now), ": the certificate is out of date, or the clock is ahead");
  }
  return std::string(error);
}

}  // namespace fusionllm::base
