// HOST:PORT, as users and other systems say where a program is reached. Pure.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::base {

// Whether a socket that is bound to `host` takes connections at all addresses of its machine: nobody can dial such a host.
bool StandsForAny(absl::string_view host);

// OK when others can dial `text`: a host name, an IPv4 address or an IPv6 address in brackets, a colon, and a port from 1 to 65535. Whether
// anybody is there is another matter. Errors: InvalidArgument, with `text` in it.
absl::Status CheckDialable(absl::string_view text);

}  // namespace fusionllm::base
