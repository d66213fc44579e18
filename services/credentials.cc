#include "services/credentials.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"

namespace fusionllm::services {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::ostringstream text;
  text << in.rdbuf();
  if (text.str().empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return text.str();
}

}  // namespace

absl::StatusOr<Credentials> LoadCredentials(const std::string& directory, const std::string& name) {
  if (directory.empty()) {
    return Credentials{.channel = grpc::InsecureChannelCredentials(),
                       .server = grpc::InsecureServerCredentials(),
                       .enrolling_server = grpc::InsecureServerCredentials(),
                       .job_hash = 1};
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string ca, ReadFile(absl::StrCat(directory, "/ca.pem")));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string certificate, ReadFile(absl::StrCat(directory, "/", name, ".pem")));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string key, ReadFile(absl::StrCat(directory, "/", name, ".key")));
  const auto server = [&](grpc_ssl_client_certificate_request_type request) {
    grpc::SslServerCredentialsOptions options(request);
    options.pem_root_certs = ca;
    options.pem_key_cert_pairs.push_back({key, certificate});
    return grpc::SslServerCredentials(options);
  };
  return Credentials{.channel = grpc::SslCredentials({.pem_root_certs = ca, .pem_private_key = key, .pem_cert_chain = certificate}),
                     .server = server(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY),
                     .enrolling_server = server(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY),
                     .job_hash = base::StableHash(ca),
                     .secure = true};
}

}  // namespace fusionllm::services
