#include "services/peer_address.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/host_port.h"
#include "lib/base/status_macros.h"

namespace fusionllm::services {
namespace {

constexpr size_t kMaxAddressBytes = 512;

}  // namespace

absl::Status CheckPeerAddress(absl::string_view name, absl::string_view address) {
  if (address.size() > kMaxAddressBytes) return absl::InvalidArgumentError(absl::StrFormat("an address of %d bytes", address.size()));
  if (absl::StartsWith(address, kRelayPrefix)) {
    if (address.substr(sizeof(kRelayPrefix) - 1) == name) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat("'%s' is not where %s is met at the relay", absl::CHexEscape(address), name));
  }
  // On one machine a host that stands for any address leads there.
  FUSIONLLM_ASSIGN_OR_RETURN(const base::HostPort parts, base::SplitHostPort(address));
  if (parts.port > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("'", absl::CHexEscape(address), "' has no port that can be dialled"));
}

}  // namespace fusionllm::services
