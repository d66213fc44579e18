// Who is at the other end of a call, by its certificate.
#pragma once

#include <grpcpp/server_context.h>

#include <algorithm>

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

}  // namespace fusionllm::services
