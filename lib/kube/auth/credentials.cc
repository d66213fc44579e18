#include "lib/kube/auth/credentials.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/log.h"
#include "lib/kube/auth/small_file.h"

namespace fusionllm::kube {
namespace {

constexpr absl::Duration kTokenAge = absl::Seconds(50);
constexpr size_t kMaxTokenBytes = 64 << 10;

class Fixed : public CredentialSource {
 public:
  explicit Fixed(Credentials credentials) : credentials_(std::make_shared<const Credentials>(std::move(credentials))) {}
  absl::StatusOr<std::shared_ptr<const Credentials>> Get(std::stop_token) override { return credentials_; }

 private:
  const std::shared_ptr<const Credentials> credentials_;
};

}  // namespace

bool IsToken(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); });
}

absl::Status NoCredentials(const absl::Status& why) {
  return absl::IsCancelled(why) ? why : absl::UnauthenticatedError(absl::StrCat("no credentials: ", why.message()));
}

std::shared_ptr<CredentialSource> StaticCredentials(Credentials credentials) { return std::make_shared<Fixed>(std::move(credentials)); }

absl::StatusOr<std::shared_ptr<const Credentials>> TokenFile::Get(std::stop_token) {
  const base::MutexLock lock(mutex_);
  const absl::Duration now = clock_.Monotonic();
  if (last_ != nullptr && now < read_again_) return last_;
  absl::StatusOr<std::string> text = ReadSmallFile(path_, kMaxTokenBytes);
  const std::string token(text.ok() ? absl::StripAsciiWhitespace(*text) : absl::string_view());
  if (token.empty() || !IsToken(token)) {
    const absl::Status why =
        text.ok()
            ? absl::FailedPreconditionError(absl::StrCat(path_, ": the token file ", token.empty() ? "is empty" : kInvalidTokenMessage))
            : text.status();
    if (last_ == nullptr) return NoCredentials(why);
    base::Log(base::LogLevel::kWarning, absl::StrCat("the token is not renewed, the last one stays in use: ", why.message()));
    return last_;
  }
  if (last_ == nullptr || last_->token != token) last_ = std::make_shared<const Credentials>(Credentials{.token = token});
  read_again_ = now + kTokenAge;
  return last_;
}

void TokenFile::Refused(const Credentials& used) {
  const base::MutexLock lock(mutex_);
  // A newer one that another thread has read meanwhile is not what was refused.
  if (last_ != nullptr && last_->token == used.token) read_again_ = -absl::InfiniteDuration();
}

std::string RedactSecret(absl::string_view text, absl::string_view secret) {
  if (secret.empty()) return std::string(text);
  return absl::StrReplaceAll(text, {{secret, "[redacted]"}});
}

}  // namespace fusionllm::kube
