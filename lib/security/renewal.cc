#include "lib/security/renewal.h"

#include <condition_variable>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/file_error.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/security/pem.h"
#include "lib/security/private_file.h"

namespace fusionllm::security {
namespace {

absl::Status RenewFile(const CertificateAuthority& authority, const std::string& path, absl::Time now) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string certificate_pem, ReadSmallFile(path, kMaxPemBytes));
  const absl::StatusOr<bool> needed = NeedsRenewal(certificate_pem, now);
  if (needed.ok() && !*needed) return absl::OkStatus();
  const absl::StatusOr<std::string> renewed = needed.ok() ? authority.Renew(certificate_pem, {.now = now}) : needed.status();
  if (!renewed.ok()) return absl::Status(renewed.status().code(), absl::StrCat(path, ": ", renewed.status().message()));
  return WritePrivateFile(path, *renewed);
}

}  // namespace

absl::StatusOr<bool> NeedsRenewal(absl::string_view certificate_pem, absl::Time now) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> chain, ParseCertificates(certificate_pem, "the certificate to renew"));
  const absl::Time begin = ToTime(*X509_get0_notBefore(chain.front().get()));
  const absl::Time end = ToTime(*X509_get0_notAfter(chain.front().get()));
  return end - now < (end - begin) / 3;
}

bool HaveSameKey(absl::string_view certificate_pem, absl::string_view other_pem) {
  const auto one = ParseCertificates(certificate_pem, "a certificate"), other = ParseCertificates(other_pem, "a certificate");
  if (!one.ok() || !other.ok()) return false;
  return EVP_PKEY_eq(X509_get0_pubkey(one->front().get()), X509_get0_pubkey(other->front().get())) == 1;
}

absl::Status RenewFolder(const CertificateAuthority& authority, const std::string& folder, absl::Time now) {
  std::error_code error;
  absl::Status first;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::filesystem::path path = at->path();
    std::error_code absent;
    if (path.extension() != ".pem" || path.stem() == "ca") continue;
    if (!std::filesystem::exists(std::filesystem::path(path).replace_extension(".key"), absent)) continue;
    first.Update(RenewFile(authority, path.string(), now));
  }
  if (error) first.Update(base::FileError(error.value(), "list", folder));
  return first;
}

RenewalThread::RenewalThread(std::string what, std::function<absl::Status()> renew, absl::Duration interval)
    : thread_([what = std::move(what), renew = std::move(renew), interval](const std::stop_token& stop) {
        base::Mutex mutex;  // guards nothing; the wait needs one
        std::condition_variable_any wake;
        while (!stop.stop_requested()) {
          if (const absl::Status status = renew(); !status.ok()) {
            base::Log(base::LogLevel::kWarning, absl::StrCat(what, " cannot be renewed now: ", status.message()));
          }
          base::UniqueLock lock(mutex);
          wake.wait_for(lock, stop, absl::ToChronoNanoseconds(interval), [] { return false; });
        }
      }) {}

}  // namespace fusionllm::security
