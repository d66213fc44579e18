#include "lib/job/name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "lib/base/dns_label.h"

namespace fusionllm::job {

bool IsName(absl::string_view text) {
  const auto fits = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.'; };
  return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), fits) &&
         absl::ascii_isalnum(static_cast<unsigned char>(text.front()));
}

bool IsJobName(absl::string_view text) {
  return base::IsDnsLabel(text) && text.size() <= kMaxJobName && absl::ascii_islower(static_cast<unsigned char>(text.front()));
}

}  // namespace fusionllm::job
