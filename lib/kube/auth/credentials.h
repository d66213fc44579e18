// How we say who we are to an API server: a bearer token or a client certificate, and where they come from.
//
// Sources are thread-safe and asked before each request. No token, key or other secret is ever part of an error or a log line.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/kube/clock.h"

namespace fusionllm::kube {

struct Credentials {
  std::string token;  // without "Bearer "; may be empty
  std::string certificate_pem, key_pem;
  bool operator==(const Credentials&) const = default;
};

// Whether it can stand in a line of a request: it has no control character, a line end say.
bool IsToken(absl::string_view text);
// What else is said of a token; the token is not.
inline constexpr char kInvalidTokenMessage[] = "holds a control character, such as a line end, and is no token";

// Whatever it is that a program, a file or this machine failed at, the caller has no identity: Unauthenticated, with why. Cancelled stays
// so.
absl::Status NoCredentials(const absl::Status& why);

class CredentialSource {
 public:
  virtual ~CredentialSource() = default;
  // May block on a file or a program. Unauthenticated: there are none, as NoCredentials() has it; Cancelled: `stop` was requested.
  virtual absl::StatusOr<std::shared_ptr<const Credentials>> Get(std::stop_token stop) = 0;
  // The server has answered 401 to a request with `used`: what is kept is not to be given out again unless it is newer.
  virtual void Refused(const Credentials& used) {}
};

// The same for ever.
std::shared_ptr<CredentialSource> StaticCredentials(Credentials credentials);

// A token in a file that somebody renews, as the kubelet does for Pods. Read again once it is older than 50 s, or refused; while it cannot
// be read, or holds no token, the last token goes on being used, for it may still be good.
class TokenFile : public CredentialSource {
 public:
  TokenFile(std::string path, Clock& clock) : path_(std::move(path)), clock_(clock) {}
  absl::StatusOr<std::shared_ptr<const Credentials>> Get(std::stop_token stop) override;
  void Refused(const Credentials& used) override;

 private:
  const std::string path_;
  Clock& clock_;
  base::Mutex mutex_;
  std::shared_ptr<const Credentials> last_ ABSL_GUARDED_BY(mutex_);
  absl::Duration read_again_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

// Text for people that may quote what a server sent: every occurrence of the secret becomes "[redacted]".
std::string RedactSecret(absl::string_view text, absl::string_view secret);

}  // namespace fusionllm::kube
