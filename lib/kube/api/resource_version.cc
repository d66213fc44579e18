#include "lib/kube/api/resource_version.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace fusionllm::kube {

bool IsResourceVersion(absl::string_view text) {
  return !text.empty() && text.front() != '0' &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
}

std::optional<int> CompareResourceVersions(absl::string_view a, absl::string_view b) {
  if (!IsResourceVersion(a) || !IsResourceVersion(b)) return std::nullopt;
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

}  // namespace fusionllm::kube
