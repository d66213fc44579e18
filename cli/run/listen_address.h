// An address to listen on: whether this machine can, and what it means for those who dial it. Asks the system for its interfaces, and for
// the addresses of a host's name, which may block.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::cli {

// Hosts under which other machines may dial who listens on "10.0.0.1:PORT" (that one), or on "0.0.0.0:PORT" (every address of this machine
// but loopback and link-local ones). Nothing listens: none.
std::vector<std::string> HostsOf(const std::optional<std::string>& listen);

// OK when this machine can listen on `address` now: it is HOST:PORT, the host is its own, and the port is free (0: any). Errors:
// InvalidArgument, with `address` and the reason.
absl::Status CheckListen(const std::string& address);

// "10.0.0.1:PORT" as it is; of "0.0.0.0:PORT" an address of this machine with that port, or words that ask for one.
std::string AddressToDial(absl::string_view listening);

}  // namespace fusionllm::cli
