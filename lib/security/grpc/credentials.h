// gRPC credentials for mutual TLS among the members of one job.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/security/certificates.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace fusionllm::security {

// What a member holds: the authority's certificate and its own pair.
struct Identity {
  std::string authority_pem;
  CertificateAndKey pair;
};

// Both check the identity first, so that a wrong or expired certificate is reported in words here and not as a failed handshake later.
// The server demands a certificate of the job's authority from everyone who calls.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const Identity& identity);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsChannel(const Identity& identity);
// For a caller that has no certificate yet, to a server that authenticates by token: it verifies the server alone.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ServerTlsChannel(const std::string& authority_pem);
// Its counterpart: shows a certificate, asks for none.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsServer(const Identity& identity);

}  // namespace fusionllm::security
