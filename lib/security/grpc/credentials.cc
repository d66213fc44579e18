#include "lib/security/grpc/credentials.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/security/credential_files.h"
#include "lib/security/pem.h"

namespace fusionllm::security {
namespace {

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Server(const PemCredentials& own,
                                                                grpc_ssl_client_certificate_request_type request) {
  FUSIONLLM_RETURN_IF_ERROR(CheckCredentials(own, /*name=*/""));
  grpc::SslServerCredentialsOptions options(request);
  options.pem_root_certs = own.ca_pem;
  options.pem_key_cert_pairs.push_back({own.private_key_pem, own.certificate_pem});
  return grpc::SslServerCredentials(options);
}

using grpc::experimental::FileWatcherCertificateProvider;

std::shared_ptr<grpc::ServerCredentials> WatchingServer(const std::shared_ptr<FileWatcherCertificateProvider>& files,
                                                        grpc_ssl_client_certificate_request_type request) {
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(request);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace

absl::StatusOr<WatchedCredentials> WatchCredentials(const std::string& folder, const std::string& name, absl::Duration refresh) {
  WatchedCredentials watched;
  FUSIONLLM_ASSIGN_OR_RETURN(watched.texts, ReadCredentials(folder, name));
  const auto seconds = static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(refresh)));
  const auto files = std::make_shared<FileWatcherCertificateProvider>(absl::StrCat(folder, "/", name, ".key"),
                                                                      absl::StrCat(folder, "/", name, ".pem"), folder + "/ca.pem", seconds);
  watched.server = WatchingServer(files, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  watched.enrolling_server = WatchingServer(files, GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(files);
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  watched.channel = grpc::experimental::TlsCredentials(options);
  return watched;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTlsServer(const PemCredentials& own) {
  return Server(own, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> EnrollingTlsServer(const PemCredentials& own) {
  return Server(own, GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MutualTlsChannel(const PemCredentials& own) {
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
