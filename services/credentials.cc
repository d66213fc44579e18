#include "services/credentials.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/host_port.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"
#include "lib/security/grpc/credentials.h"

namespace fusionllm::services {

absl::StatusOr<Credentials> LoadCredentials(const std::string& directory, const std::string& name) {
  if (directory.empty()) {
    return Credentials{.channel = grpc::InsecureChannelCredentials(),
                       .server = grpc::InsecureServerCredentials(),
                       .enrolling_server = grpc::InsecureServerCredentials(),
                       .job_hash = 1};
  }
  FUSIONLLM_ASSIGN_OR_RETURN(security::WatchedCredentials watched, security::WatchCredentials(directory, name));
  Credentials credentials{.channel = std::move(watched.channel),
                          .server = std::move(watched.server),
                          .enrolling_server = std::move(watched.enrolling_server),
                          .job_hash = base::StableHash(watched.texts.ca_pem),
                          .secure = true};
  return credentials;
}

absl::Status CheckServedPlaintext(const std::string& tls_directory, bool insecure, const std::string& listen_address) {
  if (!tls_directory.empty() || insecure) return absl::OkStatus();
  FUSIONLLM_ASSIGN_OR_RETURN(const base::HostPort at, base::SplitHostPort(listen_address));
  if (base::IsLoopback(at.host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--listen ", listen_address,
                   " is reached from other machines, and without --tls FOLDER every client is served in clear text: "
                   "give --tls, listen on 127.0.0.1, or say --insecure"));
}

}  // namespace fusionllm::services
