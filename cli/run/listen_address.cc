#include "cli/run/listen_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/host_port.h"
#include "lib/base/status_macros.h"

namespace fusionllm::cli {
namespace {

// The addresses of this machine, loopback and link-local ones aside.
std::vector<std::string> OwnAddresses() {
  std::vector<std::string> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* one = all; one != nullptr && addresses.size() < 32; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char text[NI_MAXHOST] = {};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(one->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const std::string address = text;
    if (!absl::StrContains(address, '%')) addresses.push_back(address);
  }
  freeifaddrs(all);
  return addresses;
}

// Of a group of machines, or of all in a network: a socket can be bound to it, and it cannot be dialed.
bool IsOfMany(const addrinfo& at) {
  if (at.ai_family == AF_INET6) return IN6_IS_ADDR_MULTICAST(&reinterpret_cast<const sockaddr_in6*>(at.ai_addr)->sin6_addr);
  const uint32_t address = ntohl(reinterpret_cast<const sockaddr_in*>(at.ai_addr)->sin_addr.s_addr);
  return at.ai_family == AF_INET && (IN_MULTICAST(address) || address == INADDR_BROADCAST);
}

// errno of an attempt, which leaves nothing behind; 0: none.
int ErrorOfListening(const addrinfo& at) {
  if (IsOfMany(at)) return EADDRNOTAVAIL;
  const int descriptor = socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  if (descriptor < 0) return errno;
  const int yes = 1;  // connections of earlier servers that linger do not hold the port
  (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const int error = bind(descriptor, at.ai_addr, at.ai_addrlen) == 0 && listen(descriptor, 1) == 0 ? 0 : errno;
  close(descriptor);
  return error;
}

}  // namespace

std::vector<std::string> HostsOf(const std::optional<std::string>& listen) {
  if (!listen) return {};
  const absl::StatusOr<base::HostPort> at = base::SplitHostPort(*listen);
  if (!at.ok() || at->host == "localhost") return {};
  if (base::IsWildcardAddress(at->host)) return OwnAddresses();
  return {at->host};
}

absl::Status CheckListen(const std::string& address) {
  FUSIONLLM_RETURN_IF_ERROR(base::CheckListenable(address));
  FUSIONLLM_ASSIGN_OR_RETURN(const base::HostPort at, base::SplitHostPort(address));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(at.host.c_str(), absl::StrCat(at.port).c_str(), &hints, &found);
  if (code != 0) return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", address, ": ", gai_strerror(code)));
  int error = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    error = ErrorOfListening(*one);
    if (error == 0) break;  // a server takes those that it can
  }
  freeaddrinfo(found);
  if (error == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", address, ": ", std::strerror(error)));
}

std::string AddressToDial(absl::string_view listening) {
  const absl::StatusOr<base::HostPort> at = base::SplitHostPort(listening);
  if (!at.ok() || !base::IsWildcardAddress(at->host)) return std::string(listening);
  const std::vector<std::string> own = OwnAddresses();
  const std::string host = own.empty() ? "ADDRESS-OF-THIS-MACHINE" : own.front();
  return base::JoinHostPort(host, absl::StrCat(at->port));
}

}  // namespace fusionllm::cli
