// What an address to listen on means for those who dial it. Asks the system for its interfaces; does not block.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::cli {

// Hosts under which other machines may dial who listens on "10.0.0.1:PORT" (that one), or on "0.0.0.0:PORT" (every address of this machine
// but loopback and link-local ones). Nothing listens: none.
std::vector<std::string> HostsOf(const std::optional<std::string>& listen);

// "10.0.0.1:PORT" as it is; of "0.0.0.0:PORT" an address of this machine with that port, or words that ask for one.
std::string AddressToDial(absl::string_view listening);

}  // namespace fusionllm::cli
