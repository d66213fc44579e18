// HOST:PORT, as users and other systems say where a program is reached. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::base {

// Whether a socket that is bound to `host` (an IPv6 address with or without brackets) takes connections at all addresses of its machine,
// however it is spelt: such a host cannot be dialed.
bool IsWildcardAddress(absl::string_view host);

// Whether `host`, as above or a name, leads from each machine to that machine itself, however it is spelt: 127.0.0.0/8, ::1, localhost.
bool IsLoopback(absl::string_view host);

// "lab:7001", "[2001:db8::1]:7001": an IPv6 address gets its brackets. `port` as text, for it may be a name or a placeholder.
std::string JoinHostPort(absl::string_view host, absl::string_view port);

// OK when others can dial `host`, were there a port: a host name, an IPv4 address, or an IPv6 address with or without brackets. Errors:
// InvalidArgument, with `host` in it.
absl::Status CheckDialableHost(absl::string_view host);

// OK when others can dial `text`: a host name, an IPv4 address in four decimal parts or an IPv6 address in brackets, a colon, and a port
// from 1 to 65535. Whether anybody is there is another matter. Errors: InvalidArgument, with `text` in it.
absl::Status CheckDialable(absl::string_view text);

struct HostPort {
  std::string host;  // an IPv6 address without its brackets
  int port = 0;
};
// The parts of HOST:PORT, whatever the host stands for. Errors: InvalidArgument, with `text` in it.
absl::StatusOr<HostPort> SplitHostPort(absl::string_view text);

// OK when a server could listen on `text`: as above, but the host may stand for any address, and port 0 for a free one. Whether
// this machine has the address is another matter. Errors: InvalidArgument, with `text` in it.
absl::Status CheckListenable(absl::string_view text);

}  // namespace fusionllm::base
