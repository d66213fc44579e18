#include "lib/kube/api/time.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::kube {

std::string TimeText(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()); }

std::string MicroTimeText(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()); }

absl::StatusOr<absl::Time> TimeFromText(absl::string_view text) {
  absl::Time time;
  std::string why;
  // absl also takes blanks around a time and words such as "infinite-future": no server sends those.
  const bool shaped = text.size() >= 20 && text.size() <= 64 && absl::ascii_isdigit(static_cast<unsigned char>(text.front())) &&
                      !absl::ascii_isspace(static_cast<unsigned char>(text.back()));
  if (!shaped || !absl::ParseTime(absl::RFC3339_full, std::string(text), &time, &why)) {
    return absl::InvalidArgumentError(absl::StrCat("not a time of RFC 3339: \"", text.substr(0, 64), "\""));
  }
  return time;
}

}  // namespace fusionllm::kube
