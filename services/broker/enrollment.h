// Gives executors of other machines an identity in exchange for the run's join token.
//
// Who has the token may enroll under any free name until the run ends. What outsiders can make the broker do here is bounded: tokens
// have at most security::kMaxJoinTokenBytes, wrong ones beyond kWrongTokensPerMinute are not looked at, and kEnrolledMax certificates are
// issued. Nothing of a call is read before its caller has shown a certificate or the token (auth_interceptor.h), and main.cc bounds the
// threads that serve calls. Not bounded: how many connections are held open. Thread-safe; blocks for the making of a key.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/executor_name.h"
#include "lib/security/join_token.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

// Whether an executor of that name is connected now.
using NameInUse = std::function<bool(const std::string& name)>;

class Enrollment {
 public:
  static constexpr int kWrongTokensPerMinute = 30;
  static constexpr int kEnrolledMax = 256;  // at a time
  // How long a name is kept for an executor that has enrolled and not yet connected.
  static constexpr absl::Duration kNameHoldTime = absl::Seconds(30);
  // How soon an executor that has come and gone may enroll again: one that crashes at each start does not use up the certificates.
  static constexpr absl::Duration kReenrollAfter = absl::Seconds(5);
  // How long after it has enrolled an executor that is not there any more takes a place of kEnrolledMax.
  static constexpr absl::Duration kEnrollmentExpiry = absl::Hours(1);

  // Names are compared without case. Reads ca.pem, ca.key and token of `folder`. `taken`: names of this machine's executors. `job_document`
  // goes to those who enroll. Errors: NotFound or InvalidArgument naming the file.
  static absl::StatusOr<Enrollment> Load(const std::string& folder, std::set<std::string> taken, std::string job_document);

  // Whether this is the run's token. Errors: the first two of Enroll, and InvalidArgument for what is none.
  absl::Status CheckToken(const std::string& token, absl::Time now);

  // Errors: PermissionDenied (wrong token), ResourceExhausted (too many of these, or of certificates), AlreadyExists (the name is in use),
  // InvalidArgument (the token is not one, a name that no process may have, or no key). Messages are sentences and never repeat the token.
  absl::StatusOr<v1::EnrollResponse> Enroll(const v1::EnrollRequest& request, const NameInUse& in_use, absl::Time now);

  // A certificate in place of `certificate_pem`, which the caller has shown: that it may have another is for the caller of this to know.
  // Errors: CertificateAuthority::Renew's.
  absl::StatusOr<v1::RenewResponse> Renew(const std::string& certificate_pem, absl::Time now) const;

  // An executor of that name has connected: once it disconnects, the name is free, kReenrollAfter after it enrolled. Any name.
  void OnConnected(const std::string& name);

 private:
  // Behind a pointer: it holds a mutex, and an Enrollment moves.
  struct Book {
    base::Mutex mutex;
    struct Enrolled {
      absl::Time last;
      absl::Duration held_for = kNameHoldTime;
    };
    std::map<std::string, Enrolled, security::CaseInsensitiveLess> enrolled ABSL_GUARDED_BY(mutex);  // by name
    absl::Time minute_began ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
    int wrong_tokens ABSL_GUARDED_BY(mutex) = 0;  // in that minute
  };
  Enrollment(security::CertificateAuthority authority, const security::JoinSecret& secret, std::set<std::string> taken,
             std::string job_document)
      : authority_(std::move(authority)),
        secret_(secret),
        taken_(taken.begin(), taken.end()),
        job_document_(std::move(job_document)),
        book_(std::make_unique<Book>()) {}

  void ExpireNames(const NameInUse& in_use, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(book_->mutex);
  absl::StatusOr<std::string> AllocateName(const std::string& wanted, const NameInUse& in_use, absl::Time now);

  security::CertificateAuthority authority_;
  security::JoinSecret secret_;
  std::set<std::string, security::CaseInsensitiveLess> taken_;
  std::string job_document_;
  std::unique_ptr<Book> book_;
};

}  // namespace fusionllm::services
