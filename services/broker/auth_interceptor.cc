#include "services/broker/auth_interceptor.h"

#include "services/join_metadata.h"

namespace fusionllm::services {
namespace {

constexpr char kPath[] = ":path";
constexpr char kEnroll[] = "/fusionllm.v1.Broker/Enroll";

}  // namespace

grpc::Status AuthInterceptor::Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata* consumed,
                                      OutputMetadata*) {
  if (context->IsPeerAuthenticated()) return grpc::Status::OK;
  const auto path = metadata.find(kPath);
  if (path == metadata.end() || path->second != kEnroll) {
    return {grpc::StatusCode::UNAUTHENTICATED, "WrongCertificate: no certificate of this job's CA was presented; a join token buys one"};
  }
  if (check_ == nullptr) {
    return {grpc::StatusCode::UNIMPLEMENTED, std::string(kEnrollmentDisabled)};
  }
  const auto token = metadata.find(kJoinTokenMetadata);
  if (token == metadata.end()) {
    return {grpc::StatusCode::UNAUTHENTICATED, "the call shows no join token; join with a fusionctl of the same version as the run's"};
  }
  std::string text(token->second.data(), token->second.size());
  const absl::Status status = check_(text);
  consumed->emplace(kJoinTokenMetadata, std::move(text));
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

}  // namespace fusionllm::services
