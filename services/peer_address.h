// How an executor says where its peers meet it: "host:port", or "relay:NAME" of one that cannot be dialled. Pure.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::services {

inline constexpr char kRelayPrefix[] = "relay:";

// OK for an address that the executor `name` may give for itself. Errors: InvalidArgument for another's name at the relay, and for what is
// neither a name there nor host:port with a port that can be dialled.
absl::Status CheckPeerAddress(absl::string_view name, absl::string_view address);

}  // namespace fusionllm::services
