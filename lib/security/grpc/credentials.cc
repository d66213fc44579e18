#include "lib/security/grpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include "lib/base/status_macros.h"
#include "lib/security/credential_files.h"
#include "lib/security/pem.h"

namespace fusionllm::security {
namespace {

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Server(const CredentialTexts& own,
                                                                grpc_ssl_client_certificate_request_type request) {
  FUSIONLLM_RETURN_IF_ERROR(CheckCredentials(own, /*name=*/""));
  grpc::SslServerCredentialsOptions options(request);
  options.pem_root_certs = own.ca_pem;
  options.pem_key_cert_pairs.push_back({own.private_key_pem, own.certificate_pem});
  return grpc::SslServerCredentials(options);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const CredentialTexts& own) {
  return Server(own, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> EnrollingTlsServer(const CredentialTexts& own) {
  return Server(own, GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsChannel(const CredentialTexts& own) {
  FUSIONLLM_RETURN_IF_ERROR(CheckCredentials(own, /*name=*/""));
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = own.ca_pem;
  options.pem_private_key = own.private_key_pem;
  options.pem_cert_chain = own.certificate_pem;
  return grpc::SslCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ServerTlsChannel(const std::string& authority_pem) {
  FUSIONLLM_RETURN_IF_ERROR(ParseCertificates(authority_pem, "the authority's certificate").status());
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = authority_pem;
  return grpc::SslCredentials(options);
}

}  // namespace fusionllm::security
