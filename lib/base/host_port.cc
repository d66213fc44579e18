#include "lib/base/host_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"

namespace fusionllm::base {
namespace {

constexpr size_t kHostBytesMax = 253;  // RFC 1035, section 2.3.4, as text

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_'; }

bool IsAddressCharacter(char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; }

bool IsHost(absl::string_view host) {
  if (host.empty() || host.size() > kHostBytesMax) return false;
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return false;
    const absl::string_view address = host.substr(0, host.find('%'));  // what follows names an interface
    const absl::string_view zone = host.substr(address.size());
    return absl::StrContains(address, ':') && std::all_of(address.begin(), address.end(), IsAddressCharacter) &&
           (zone.empty() || (zone.size() > 1 && std::all_of(zone.begin() + 1, zone.end(), IsNameCharacter)));
  }
  // What begins with a dash would be an option to somebody.
  return host.front() != '-' && std::all_of(host.begin(), host.end(), IsNameCharacter);
}

struct Parsed {
  absl::string_view host;
  uint32_t port = 0;
};

absl::StatusOr<Parsed> Parse(absl::string_view text) {
  const size_t colon = text.rfind(':');
  Parsed parsed = {.host = text.substr(0, colon)};
  const bool has_port = colon != absl::string_view::npos && std::all_of(text.begin() + colon + 1, text.end(), absl::ascii_isdigit) &&
                        absl::SimpleAtoi(text.substr(colon + 1), &parsed.port) && parsed.port <= 65535;
  if (has_port && IsHost(parsed.host)) return parsed;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is not HOST:PORT; ports end at 65535, an IPv6 address stands in brackets"));
}

// 127.1, 0x7f.1 and 2130706433 are 127.0.0.1 to the system, and names to gRPC, which asks a DNS server for them.
absl::Status CheckWhole(absl::string_view text, absl::string_view host) {
  in_addr address;
  const std::string four(host);
  char whole[INET_ADDRSTRLEN];
  if (inet_aton(four.c_str(), &address) == 0 || inet_pton(AF_INET, four.c_str(), &address) == 1) return absl::OkStatus();
  inet_ntop(AF_INET, &address, whole, sizeof whole);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\": ", host, " is not written as four decimal numbers; the system takes it for ", whole));
}

}  // namespace

// The bits decide: there are many ways to write them, of which inet_aton() takes all that the system takes of IPv4.
bool IsWildcardAddress(absl::string_view host) {
  if (host.empty() || host == "*") return true;
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  in_addr four;
  if (inet_aton(std::string(host).c_str(), &four) != 0) return four.s_addr == INADDR_ANY;
  in6_addr six;
  if (inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &six) != 1) return false;
  if (!IN6_IS_ADDR_V4MAPPED(&six)) return IN6_IS_ADDR_UNSPECIFIED(&six);
  return std::all_of(std::begin(six.s6_addr) + 12, std::end(six.s6_addr), [](uint8_t byte) { return byte == 0; });
}

bool IsLoopback(absl::string_view host) {
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  in_addr four;
  if (inet_aton(std::string(host).c_str(), &four) != 0) return (ntohl(four.s_addr) >> 24) == IN_LOOPBACKNET;
  in6_addr six;
  if (inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &six) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == IN_LOOPBACKNET);
  }
  if (absl::EndsWith(host, ".")) host.remove_suffix(1);
  return absl::EqualsIgnoreCase(host, "localhost") || absl::EndsWithIgnoreCase(host, ".localhost");
}

std::string JoinHostPort(absl::string_view host, absl::string_view port) {
  const bool bare = absl::StrContains(host, ':') && !absl::StartsWith(host, "[");
  return absl::StrCat(bare ? "[" : "", host, bare ? "]" : "", ":", port);
}

absl::StatusOr<HostPort> SplitHostPort(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Parsed parsed, Parse(text));
  absl::string_view host = parsed.host;
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return HostPort{std::string(host), static_cast<int>(parsed.port)};
}

absl::Status CheckDialableHost(absl::string_view host) {
  absl::string_view address = host;
  const bool brackets = absl::ConsumePrefix(&address, "[");
  const bool closed = absl::ConsumeSuffix(&address, "]");
  in6_addr six;
  in_addr four;
  // What ends in a number is an address to a dialer: 10.0.0 would be 10.0.0.0, and NAME:PORT no name.
  const bool is_six = brackets == closed && inet_pton(AF_INET6, std::string(address).c_str(), &six) == 1;
  const bool numeric = !host.empty() && absl::ascii_isdigit(host.back()) && absl::StrContains(host, '.') &&
                       std::all_of(host.begin() + static_cast<ptrdiff_t>(host.rfind('.')) + 1, host.end(), absl::ascii_isdigit);
  const bool is_four = inet_pton(AF_INET, std::string(host).c_str(), &four) == 1;
  if (!is_six && (brackets || !IsHost(host) || (numeric && !is_four))) {
    return absl::InvalidArgumentError(absl::StrCat("\"", host, "\" is no host name and no address; a port does not belong to it"));
  }
  if (!IsWildcardAddress(host)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", host, "\" stands for any address"));
}

absl::Status CheckDialable(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Parsed parsed, Parse(text));
  if (parsed.port == 0) return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": port 0 cannot be dialed"));
  if (IsWildcardAddress(parsed.host)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": ", parsed.host, " stands for any address"));
  }
  return CheckWhole(text, parsed.host);
}

absl::Status CheckListenable(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Parsed parsed, Parse(text));
  return CheckWhole(text, parsed.host);
}

}  // namespace fusionllm::base
