// Who is at the other end of a call, by its certificate.
#pragma once

#include <grpcpp/server_context.h>

#include <algorithm>
#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::services {

// Whether the job's CA gave the peer this name. The common name is the one name it gave; alternative names may hold hosts besides.
inline bool IsCertifiedAs(const grpc::ServerContext& context, absl::string_view name) {
  const auto identity = context.auth_context()->FindPropertyValues("x509_common_name");
  return std::any_of(identity.begin(), identity.end(),
                     [&](const grpc::string_ref& own) { return absl::string_view(own.data(), own.size()) == name; });
}

// Whether the job's CA gave the peer a name at all: without one it may enroll and nothing else.
inline bool HasCertificate(const grpc::ServerContext& context) {
  return !context.auth_context()->FindPropertyValues("x509_common_name").empty();
}

// The certificate that the peer has shown, in PEM, and the name that the job's CA gave it there; empty: none.
struct PeerCertificate {
  std::string name, pem;
};
inline PeerCertificate CertificateOf(const grpc::ServerContext& context) {
  const auto first = [&](const char* property) {
    const auto values = context.auth_context()->FindPropertyValues(property);
    return values.empty() ? std::string() : std::string(values.front().data(), values.front().size());
  };
  return {first("x509_common_name"), first("x509_pem_cert")};
}

}  // namespace fusionllm::services
