// gRPC credentials for mutual TLS among the members of one job.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/security/credential_files.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace fusionllm::security {

// Credentials are checked first (CheckCredentials), so that a wrong or expired certificate is reported in words here and not as a failed
// handshake later. Nothing here blocks.

// The server demands a certificate of the job's authority from everyone who calls.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const CredentialTexts& own);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsChannel(const CredentialTexts& own);

// For a caller that has no certificate yet, to a server that authenticates by token: it verifies the server alone.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ServerTlsChannel(const std::string& authority_pem);
// Its counterpart: callers may show a certificate, which must then be of the job's authority, or none. Whom to serve is up to each call.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> EnrollingTlsServer(const CredentialTexts& own);

}  // namespace fusionllm::security
