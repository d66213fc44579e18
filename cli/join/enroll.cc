#include "cli/join/enroll.h"

#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/security/grpc/credentials.h"
#include "lib/security/join_token.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/version.h"

namespace fusionllm::cli {
namespace {

absl::StatusOr<std::pair<std::string, std::string>> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is no address: it has the form HOST:PORT"));
  }
  std::string host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  return std::make_pair(std::move(host), address.substr(colon + 1));
}

}  // namespace

absl::StatusOr<Enrolled> Enroll(const std::string& address, const std::string& token, const std::string& wanted_name, double patience_s) {
  FUSIONLLM_RETURN_IF_ERROR(SplitAddress(address).status());
  FUSIONLLM_ASSIGN_OR_RETURN(const security::JoinToken parsed, security::ParseJoinToken(token));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto channel_credentials, security::ServerTlsChannel(parsed.ca_pem));
  grpc::ChannelArguments arguments;
  // The CA serves this job alone, so its certificate for "broker" is proof enough, under whatever address the broker is reached.
  arguments.SetSslTargetNameOverride("broker");
  const auto stub = v1::Broker::NewStub(grpc::CreateCustomChannel(address, channel_credentials, arguments));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(patience_s * 1e3)));
  v1::EnrollRequest request;
  request.set_protocol_version(services::kProtocolVersion);
  request.set_token(token);
  request.set_name(wanted_name);
  v1::EnrollResponse response;
  const grpc::Status status = stub->Enroll(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat("no broker of this token's run answers at ", address, " within ", patience_s, " s"));
  }
  if (!status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("the broker at ", address, " says: ", status.error_message()));
  }
  Enrolled enrolled = {response.name(), {response.ca_certificate_pem(), response.certificate_pem(), response.private_key_pem()}};
  FUSIONLLM_RETURN_IF_ERROR(security::CheckCredentials(enrolled.credentials, enrolled.name));
  return enrolled;
}

absl::StatusOr<std::string> LocalAddressTowards(const std::string& address) {
  FUSIONLLM_ASSIGN_OR_RETURN(const auto parts, SplitAddress(address));
  const auto& [host, port] = parts;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot find ", host, ": ", gai_strerror(error)));
  }
  const auto free_found = absl::MakeCleanup([found] { freeaddrinfo(found); });
  // Connecting a datagram socket sends nothing: it only asks the routing table.
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("socket: ", std::strerror(errno)));
  const auto close_fd = absl::MakeCleanup([fd] { close(fd); });
  sockaddr_storage local = {};
  socklen_t size = sizeof local;
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) != 0) {
    return absl::UnavailableError(absl::StrCat("no way from this machine to ", host, ": ", std::strerror(errno)));
  }
  char text[NI_MAXHOST] = {};
  if (const int error = getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  return std::string(text);
}

}  // namespace fusionllm::cli
