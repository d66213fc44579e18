#include "operator/manifests/job_credentials.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/security/join_token.h"
#include "lib/security/renewal.h"

namespace fusionllm::op::manifests {
namespace {

constexpr char kAuthorityCertificate[] = "ca.pem";
constexpr char kAuthorityKey[] = "ca.key";
constexpr char kToken[] = "token";

}  // namespace

absl::StatusOr<JobCredentials> JobCredentials::Create(const std::string& job_name, absl::Time now) {
  security::CertificateAuthorityOptions options;
  options.common_name = job_name.substr(0, 64);
  options.validity = kValidity;
  options.now = now;
  FUSIONLLM_ASSIGN_OR_RETURN(security::CertificateAuthority authority, security::CertificateAuthority::Create(options));
  FUSIONLLM_ASSIGN_OR_RETURN(const security::JoinSecret secret, security::MakeJoinSecret());
  FUSIONLLM_ASSIGN_OR_RETURN(std::string token, security::MakeJoinToken(secret, authority.certificate_pem()));
  return JobCredentials(std::move(authority), std::move(token));
}

absl::StatusOr<JobCredentials> JobCredentials::FromFiles(const Files& files) {
  for (const char* name : {kAuthorityCertificate, kAuthorityKey, kToken}) {
    if (!files.contains(name)) return absl::InvalidArgumentError(absl::StrCat("the job's certificate authority has no ", name));
  }
  FUSIONLLM_RETURN_IF_ERROR(security::ParseJoinToken(files.at(kToken)).status());
  FUSIONLLM_ASSIGN_OR_RETURN(security::CertificateAuthority authority,
                             security::CertificateAuthority::FromPem(files.at(kAuthorityCertificate), files.at(kAuthorityKey)));
  return JobCredentials(std::move(authority), files.at(kToken));
}

Files JobCredentials::AuthorityFiles() const {
  return {{kAuthorityCertificate, authority_.certificate_pem()}, {kAuthorityKey, authority_.private_key_pem()}, {kToken, token_}};
}

absl::Status JobCredentials::Issue(const std::string& name, absl::Time now, Files& files) const {
  FUSIONLLM_ASSIGN_OR_RETURN(security::IssuedCertificate issued, authority_.Issue(name, {.now = now}));
  files[absl::StrCat(name, ".pem")] = std::move(issued.certificate_pem);
  files[absl::StrCat(name, ".key")] = std::move(issued.private_key_pem);
  return absl::OkStatus();
}

absl::StatusOr<Files> JobCredentials::BrokerFiles(absl::Time now) const {
  Files files = AuthorityFiles();
  for (const char* name : {"broker", "scheduler"}) FUSIONLLM_RETURN_IF_ERROR(Issue(name, now, files));
  return files;
}

absl::StatusOr<Files> JobCredentials::ExecutorFiles(const std::vector<std::string>& devices, absl::Time now) const {
  Files files = {{kAuthorityCertificate, authority_.certificate_pem()}};
  for (const std::string& device : devices) FUSIONLLM_RETURN_IF_ERROR(Issue(device, now, files));
  return files;
}

absl::StatusOr<Files> JobCredentials::Renewed(Files files, absl::Time now) const {
  for (auto& [name, text] : files) {
    if (!absl::EndsWith(name, ".pem") || name == kAuthorityCertificate) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(const bool needed, security::NeedsRenewal(text, now));
    if (!needed) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(text, authority_.Renew(text, {.now = now}));
  }
  return files;
}

}  // namespace fusionllm::op::manifests
