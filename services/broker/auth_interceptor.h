// Turns calls away by their head alone: gRPC reads the request of a unary call, up to the limit for messages, before it calls anybody.
//
// Callers with a certificate of the job's CA pass. Others may call Enroll and nothing else, and only with a join token in the call's
// metadata (services/join_metadata.h) that `check` accepts; handlers do not get to see it. Refusals are UNAUTHENTICATED, or what `check`
// says. For server credentials with TLS: ServerCredentials::SetAuthMetadataProcessor. Thread-safe if `check` is; does not block.
#pragma once

#include <grpcpp/security/auth_metadata_processor.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::services {

inline constexpr absl::string_view kEnrollmentDisabled =
    "this run takes no executors from other machines: it was not started with --listen";

class AuthInterceptor final : public grpc::AuthMetadataProcessor {
 public:
  using TokenCheck = std::function<absl::Status(const std::string& token)>;

  // Null: no one enrolls in this run.
  explicit AuthInterceptor(TokenCheck check) : check_(std::move(check)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

 private:
  const TokenCheck check_;
};

}  // namespace fusionllm::services
