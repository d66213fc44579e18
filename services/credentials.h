// A process's TLS identity in a run: its certificate, and the job's CA that it trusts.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fusionllm::services {

struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::shared_ptr<grpc::ServerCredentials> server;            // wants a client certificate of the CA
  std::shared_ptr<grpc::ServerCredentials> enrolling_server;  // checks a client certificate if there is one (the broker's Enroll)
  uint64_t job_hash = 0;  // of the CA: all processes of one run agree on it, those of another run do not
  bool secure = false;
};

// Reads `directory`/ca.pem, NAME.pem and NAME.key and checks that a handshake with them can succeed; an empty directory means no TLS. Files
// that are renewed later are taken up (security::WatchCredentials).
// Blocks. Errors: those of security::ReadCredentials, in words that name the file.
absl::StatusOr<Credentials> LoadCredentials(const std::string& directory, const std::string& name);

// What is served without TLS anybody on the way reads and writes. OK with a folder of TLS files, with `insecure`, or where `listen_address`
// is of loopback; else InvalidArgument, in words that name the flags.
absl::Status CheckServedPlaintext(const std::string& tls_directory, bool insecure, const std::string& listen_address);

}  // namespace fusionllm::services
