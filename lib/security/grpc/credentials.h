// gRPC credentials for mutual TLS among the members of one job.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/security/credential_files.h"

namespace grpc {
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace fusionllm::security {

// Credentials are checked first (CheckCredentials), so that a wrong or expired certificate is reported in words here and not as a failed
// handshake later. Nothing here blocks.

// The server demands a certificate of the job's CA from everyone who calls. These two are used by tests and a bench alone: programs
// watch their files.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const PemCredentials& own);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsChannel(const PemCredentials& own);

// How soon a certificate that was replaced on the disk is used.
inline constexpr absl::Duration kCertificateRefresh = absl::Minutes(1);

// Credentials of a folder's files (credential_files.h), which may be replaced while in use: handshakes later than `refresh` (whole seconds,
// at least one) take the new ones; open connections stay. ca.pem is read again too.
struct WatchedCredentials {
  PemCredentials texts;  // as they are now
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::shared_ptr<grpc::ServerCredentials> server;            // as MutualTlsServer
  std::shared_ptr<grpc::ServerCredentials> enrolling_server;  // as EnrollingTlsServer
};
// Blocks on the file system; errors as ReadCredentials. Starts a thread that lives as long as any of the three.
absl::StatusOr<WatchedCredentials> WatchCredentials(const std::string& folder, const std::string& name,
                                                    absl::Duration refresh = kCertificateRefresh);

// For a caller that has no certificate yet, to a server that authenticates by token: it verifies the server alone.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ServerTlsChannel(const std::string& authority_pem);
// Its counterpart: callers may show a certificate, which must then be of the job's CA, or none. Whom to serve is up to each call.
// Used by tests alone.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> EnrollingTlsServer(const PemCredentials& own);

}  // namespace fusionllm::security
