#include "services/broker/enrollment.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"
#include "lib/security/private_file.h"

namespace fusionllm::services {

std::string HostOfPeer(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) return "";
  const size_t colon = peer.rfind(':');
  if (colon == absl::string_view::npos) return "";
  // gRPC writes the brackets of an IPv6 address as %5B and %5D.
  const std::string host = absl::StrReplaceAll(peer.substr(0, colon), {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  return host.substr(0, host.find('%'));  // without a zone
}

Enrollment::Enrollment(security::CertificateAuthority authority, security::JoinSecret secret, std::set<std::string> taken)
    : authority_(std::move(authority)), secret_(secret), taken_(std::move(taken)) {}

absl::StatusOr<std::unique_ptr<Enrollment>> Enrollment::Load(const std::string& directory, const std::vector<std::string>& taken) {
  FUSIONLLM_ASSIGN_OR_RETURN(security::CertificateAuthority authority, security::CertificateAuthority::Load(directory));
  const std::string path = directory + "/token";
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, security::ReadSmallFile(path, security::kMaxJoinTokenBytes));
  const absl::StatusOr<security::JoinToken> token = security::ParseJoinToken(text);
  if (!token.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(token.status().message())));
  std::set<std::string> names(taken.begin(), taken.end());
  for (const char* service : {"broker", "scheduler", "client"}) names.insert(service);
  return std::unique_ptr<Enrollment>(new Enrollment(std::move(authority), token->secret, std::move(names)));
}

absl::StatusOr<v1::EnrollResponse> Enrollment::Enroll(const v1::EnrollRequest& request, absl::string_view peer) {
  const absl::StatusOr<security::JoinToken> token = security::ParseJoinToken(request.token());
  if (!token.ok() || !security::SameSecret(token->secret, secret_)) {
    return absl::UnauthenticatedError("WrongToken: the token is not one of this run");
  }
  const std::string wanted = request.name().empty() ? "executor" : request.name();
  FUSIONLLM_RETURN_IF_ERROR(security::CheckProcessName(wanted));
  std::string name = wanted;
  {
    const std::lock_guard lock(mutex_);
    if (enrolled_ >= kMaxEnrolled) return absl::ResourceExhaustedError(absl::StrCat("TooManyExecutors: ", kMaxEnrolled, " have enrolled"));
    for (int i = 2; taken_.contains(name); ++i) name = absl::StrCat(wanted, "-", i);
    FUSIONLLM_RETURN_IF_ERROR(security::CheckProcessName(name));
    taken_.insert(name);
    ++enrolled_;
  }
  security::IssueOptions issue;
  if (const std::string host = HostOfPeer(peer); !host.empty()) issue.hosts.push_back(host);
  FUSIONLLM_ASSIGN_OR_RETURN(const security::IssuedCertificate issued, authority_.Issue(name, issue));
  v1::EnrollResponse response;
  response.set_name(name);
  response.set_ca_certificate_pem(authority_.certificate_pem());
  response.set_certificate_pem(issued.certificate_pem);
  response.set_private_key_pem(issued.private_key_pem);
  return response;
}

}  // namespace fusionllm::services
