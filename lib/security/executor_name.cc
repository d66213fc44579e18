#include "lib/security/executor_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::security {

bool CaseInsensitiveLess::operator()(const std::string& a, const std::string& b) const {
  return absl::AsciiStrToLower(a) < absl::AsciiStrToLower(b);
}

absl::Status CheckExecutorName(absl::string_view name) {
  FUSIONLLM_RETURN_IF_ERROR(CheckProcessName(name));
  for (const absl::string_view service : kServiceNames) {
    if (!absl::EqualsIgnoreCase(name, service)) continue;
    return absl::InvalidArgumentError(absl::StrCat("the name '", name, "' is taken: a process of every run is called ", service));
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::security
