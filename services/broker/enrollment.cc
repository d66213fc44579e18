#include "services/broker/enrollment.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {

absl::StatusOr<Enrollment> Enrollment::Load(const std::string& folder, std::set<std::string> taken, std::string job_document) {
  FUSIONLLM_ASSIGN_OR_RETURN(security::CertificateAuthority authority, security::CertificateAuthority::Load(folder));
  const std::string path = absl::StrCat(folder, "/token");
  const absl::StatusOr<std::string> text = base::ReadSmallFile(path, security::kMaxJoinTokenBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat(text.status().message(), "; a run that others may join needs a token"));
  }
  const absl::StatusOr<security::JoinToken> token = security::ParseJoinToken(*text);
  if (!token.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(token.status().message())));
  taken.insert(std::begin(security::kServiceNames), std::end(security::kServiceNames));
  return Enrollment(std::move(authority), token->secret, std::move(taken), std::move(job_document));
}

absl::Status Enrollment::CheckToken(const std::string& text, absl::Time now) {
  const absl::StatusOr<security::JoinToken> token = security::ParseJoinToken(text);
  if (token.ok() && security::SameSecret(token->secret, secret_)) return absl::OkStatus();
  const base::MutexLock lock(book_->mutex);
  if (now - book_->minute_began >= absl::Minutes(1)) {
    book_->minute_began = now;
    book_->wrong_tokens = 0;
  }
  if (++book_->wrong_tokens > kWrongTokensPerMinute) {
    return absl::ResourceExhaustedError("too many wrong join tokens within a minute; wait a minute and try again");
  }
  if (!token.ok()) return token.status();
  return absl::PermissionDeniedError(
      "the join token is not that of this run; every start of a run has a new one, which fusionctl run --listen prints");
}

void Enrollment::ExpireNames(const NameInUse& in_use, absl::Time now) {
  std::erase_if(book_->enrolled, [&](const auto& entry) { return now - entry.second.last >= kEnrollmentExpiry && !in_use(entry.first); });
}

absl::StatusOr<std::string> Enrollment::AllocateName(const std::string& wanted, const NameInUse& in_use, absl::Time now) {
  const base::MutexLock lock(book_->mutex);
  ExpireNames(in_use, now);
  if (book_->enrolled.size() >= kEnrolledMax && !book_->enrolled.contains(wanted)) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d executors have enrolled in this run lately; there is no room for more now. One that has gone gives its place "
                        "back after an hour",
                        kEnrolledMax));
  }
  std::string name = wanted;
  for (int i = 0; name.empty(); ++i) {
    const std::string candidate = absl::StrCat("joined-", i);
    if (!taken_.contains(candidate) && !book_->enrolled.contains(candidate) && !in_use(candidate)) name = candidate;
  }
  FUSIONLLM_RETURN_IF_ERROR(security::CheckProcessName(name));
  if (taken_.contains(name)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the name ", name, " belongs to a process of the run's own machine; choose another --name"));
  }
  if (in_use(name)) {
    return absl::AlreadyExistsError(
        absl::StrCat("an executor called ", name,
                     " is part of this run already; choose another --name. (If its machine is gone, the name is "
                     "free within a minute: then try again)"));
  }
  if (const auto found = book_->enrolled.find(name); found != book_->enrolled.end() && now - found->second.last < found->second.held_for) {
    return absl::AlreadyExistsError(
        absl::StrFormat("the name %s was given to an executor %d s ago, for which it is kept another %d s; try again then, or choose "
                        "another --name",
                        name, absl::ToInt64Seconds(now - found->second.last),
                        absl::ToInt64Seconds(absl::Ceil(found->second.last + found->second.held_for - now, absl::Seconds(1)))));
  }
  book_->enrolled[name] = {.last = now};
  return name;
}

void Enrollment::OnConnected(const std::string& name) {
  const base::MutexLock lock(book_->mutex);
  if (const auto found = book_->enrolled.find(name); found != book_->enrolled.end()) found->second.held_for = kReenrollAfter;
}

absl::StatusOr<v1::EnrollResponse> Enrollment::Enroll(const v1::EnrollRequest& request, const NameInUse& in_use, absl::Time now) {
  FUSIONLLM_RETURN_IF_ERROR(CheckToken(request.token(), now));
  // Before a name is taken: a key that cannot be signed costs none.
  FUSIONLLM_RETURN_IF_ERROR(security::CheckPublicKey(request.public_key_pem()));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string name, AllocateName(request.name(), in_use, now));
  v1::EnrollResponse response;
  FUSIONLLM_ASSIGN_OR_RETURN(*response.mutable_certificate_pem(), authority_.IssueFor(name, request.public_key_pem(), {.now = now}));
  response.set_name(name);
  response.set_ca_certificate_pem(authority_.certificate_pem());
  response.set_job_document(job_document_);
  return response;
}

absl::StatusOr<v1::RenewResponse> Enrollment::Renew(const std::string& certificate_pem, absl::Time now) const {
  v1::RenewResponse response;
  FUSIONLLM_ASSIGN_OR_RETURN(*response.mutable_certificate_pem(), authority_.Renew(certificate_pem, {.now = now}));
  return response;
}

}  // namespace fusionllm::services
