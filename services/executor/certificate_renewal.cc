#include "services/executor/certificate_renewal.h"

#include <grpcpp/client_context.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/security/credential_files.h"
#include "lib/security/private_file.h"
#include "lib/security/renewal.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

constexpr auto kRenewalTimeout = std::chrono::seconds(20);

}  // namespace

absl::Status RenewFromBroker(const std::string& directory, const std::string& name, v1::Broker::StubInterface& broker, absl::Time now) {
  FUSIONLLM_ASSIGN_OR_RETURN(security::PemCredentials texts, security::ReadCredentials(directory, name, now));
  FUSIONLLM_ASSIGN_OR_RETURN(const bool needed, security::NeedsRenewal(texts.certificate_pem, now));
  if (!needed) return absl::OkStatus();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kRenewalTimeout);
  v1::RenewResponse response;
  if (const grpc::Status status = broker.Renew(&context, {}, &response); !status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), absl::StrCat("the broker: ", status.error_message()));
  }
  texts.certificate_pem = response.certificate_pem();
  FUSIONLLM_RETURN_IF_ERROR(security::CheckCredentials(texts, name, now));
  FUSIONLLM_RETURN_IF_ERROR(security::WritePrivateFile(absl::StrCat(directory, "/", name, ".pem"), texts.certificate_pem));
  base::Log(base::LogLevel::kInfo, absl::StrCat("the certificate of ", name, " was renewed"));
  return absl::OkStatus();
}

}  // namespace fusionllm::services
